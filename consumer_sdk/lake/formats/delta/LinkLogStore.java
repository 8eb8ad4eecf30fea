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
 * Writes a commit to a draft and gives it the commit's name as a hard link: the kernel grants
 * the name to one writer. Delta's own store checks that the name is free and then renames, which
 * replaces a commit written in between. Without locks, a stopped writer blocks no other.
 *
 * In plain Java 7 without generics: Janino compiles it in the session's JVM (log_stores.py).
 */
public class LinkLogStore extends io.delta.storage.HDFSLogStore {
    public LinkLogStore(Configuration configuration) {
        super(configuration);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        if (overwrite.booleanValue()) { // checkpoint pointers; a commit is never overwritten
            super.write(path, actions, overwrite, configuration);
            return;
        }
        java.nio.file.Path commitFile = Paths.get(path.toUri().getPath());
        String name = "." + commitFile.getFileName() + "." + UUID.randomUUID() + ".tmp";
        java.nio.file.Path draft = commitFile.resolveSibling(name);
        try {
            writeDraft(draft, actions);
            Files.createLink(commitFile, draft); // FileAlreadyExistsException: another writer was faster
        } finally {
            Files.deleteIfExists(draft);
        }
    }

    private static void writeDraft(java.nio.file.Path draft, Iterator actions) throws IOException {
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
            file.force(true); // a linked commit survives a power cut
        } finally {
            file.close();
        }
    }
}
