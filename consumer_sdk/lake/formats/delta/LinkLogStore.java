package trimtab;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log on a local file system, safe for writers of several processes.
 *
 * A commit is written to a draft, which then gets the commit's name as a hard link: the kernel
 * lets only one of several writers have the name. Delta's own store looks whether the name is
 * free and then renames, and a rename replaces what came in between. Nothing is locked, so a
 * writer that is stopped in the middle holds nobody up.
 *
 * In plain Java 7 without generics: Janino compiles it in the session's JVM (linkstore.py).
 */
public class LinkLogStore extends io.delta.storage.HDFSLogStore {
    public LinkLogStore(Configuration configuration) {
        super(configuration);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        if (overwrite.booleanValue()) { // checkpoint pointers and the like; no commit is replaced
            super.write(path, actions, overwrite, configuration);
            return;
        }
        java.nio.file.Path wanted = Paths.get(path.toUri().getPath());
        String name = "." + wanted.getFileName() + "." + UUID.randomUUID() + ".tmp";
        java.nio.file.Path draft = wanted.resolveSibling(name);
        try {
            fill(draft, actions);
            Files.createLink(wanted, draft); // FileAlreadyExistsException: another was faster
        } finally {
            Files.deleteIfExists(draft);
        }
    }

    private static void fill(java.nio.file.Path draft, Iterator actions) throws IOException {
        FileChannel file = FileChannel.open(draft, new StandardOpenOption[] {
            StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE
        });
        try {
            while (actions.hasNext()) {
                String line = (String) actions.next() + "\n";
                ByteBuffer bytes = ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8));
                while (bytes.hasRemaining()) {
                    file.write(bytes);
                }
            }
            file.force(true); // what is linked survives a power cut
        } finally {
            file.close();
        }
    }
}
