package oracle;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Entries in a file, one behind another: i64 ledger id, i64 entry id, i32 length, payload. */
final class EntryFile {
    record Stored(long ledgerId, long entryId, byte[] payload) {}

    private EntryFile() {}

    static List<Stored> read(Path path) throws IOException {
        List<Stored> entries = new ArrayList<>();
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(Files.newInputStream(path)))) {
            while (in.available() > 0) {
                entries.add(new Stored(in.readLong(), in.readLong(), in.readNBytes(in.readInt())));
            }
        }
        return entries;
    }

    static void write(Path path, List<Stored> entries) throws IOException {
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(path)))) {
            for (Stored entry : entries) {
                out.writeLong(entry.ledgerId());
                out.writeLong(entry.entryId());
                out.writeInt(entry.payload().length);
                out.write(entry.payload());
            }
        }
    }
}
