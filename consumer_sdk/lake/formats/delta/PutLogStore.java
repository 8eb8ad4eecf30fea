package trimtab;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log on S3, safe for writers of several processes.
 *
 * Puts a commit under the condition that there is none of its name (If-None-Match): S3 grants the
 * name to one writer. Delta's own store looks whether the name is free and then puts, which replaces
 * a commit written in between; its store with a lock needs a DynamoDB table.
 *
 * In plain Java 7 without generics: Janino compiles it in the session's JVM (log_stores.py).
 */
public class PutLogStore extends io.delta.storage.S3SingleDriverLogStore {
    private static final String PUT_IF_ABSENT = "fs.option.create.conditional.overwrite";

    public PutLogStore(Configuration configuration) {
        super(configuration);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        if (overwrite.booleanValue()) { // checkpoint pointers; a commit is never overwritten
            super.write(path, actions, overwrite, configuration);
            return;
        }
        FileSystem files = path.getFileSystem(configuration);
        try {
            put(files, path, join(actions));
        } catch (IOException error) {
            // Refused, or unanswered and repeated: whose commit has the name, its content tells.
            if (files.exists(path)) {
                throw new FileAlreadyExistsException(path.toString());
            }
            throw error;
        }
    }

    /** Returns whether the store refuses a second object of the same name. */
    public boolean keepsFirst(Path probe, Configuration configuration) throws IOException {
        FileSystem files = probe.getFileSystem(configuration);
        for (int attempt = 0; attempt < 2; attempt++) { // there may be none yet
            try {
                put(files, probe, new byte[0]);
            } catch (IOException error) {
                if (files.exists(probe)) {
                    return true;
                }
                throw error;
            }
        }
        return false;
    }

    private static void put(FileSystem files, Path path, byte[] commit) throws IOException {
        FSDataOutputStreamBuilder builder = files.createFile(path);
        builder.must(PUT_IF_ABSENT, true); // an error where the client cannot
        FSDataOutputStream stream = (FSDataOutputStream) builder.build();
        boolean complete = false;
        try {
            stream.write(commit);
            complete = true;
        } finally {
            if (complete) {
                stream.close(); // the request
            } else {
                stream.abort();
            }
        }
    }

    private static byte[] join(Iterator actions) {
        StringBuilder lines = new StringBuilder();
        while (actions.hasNext()) {
            lines.append((String) actions.next()).append('\n');
        }
        return lines.toString().getBytes(StandardCharsets.UTF_8);
    }
}
