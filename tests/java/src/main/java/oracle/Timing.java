package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.InputStream;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.BlockAwareSegmentInputStreamImpl;

/** How long Pulsar's classes take for one round over a ledger in memory. What is set up for it is kept for the next. */
final class Timing {
    private static final int BATCH = 100; // entries that a broker's cursor asks for at once
    private static final int DRAIN_BYTES = 64 << 10;

    private static JsonNode written;
    private static MemoryLedger ledger;
    private static JsonNode read;
    private static Tier tier;
    private static ReadHandle handle;

    private Timing() {}

    /** Drains the blocks of the "entries", of "block_bytes" at most, into a small buffer: "seconds" and "bytes". */
    static ObjectNode writer(JsonNode request) throws Exception {
        if (!request.equals(written)) {
            ledger = MemoryLedger.of(request);
            written = request;
        }
        int limit = request.required("block_bytes").asInt();
        byte[] buffer = new byte[DRAIN_BYTES];
        long bytes = 0;
        long taken = 0;
        long began = System.nanoTime();
        for (long first = 0; first <= ledger.getLastAddConfirmed(); ) {
            int size = BlockAwareSegmentInputStreamImpl.calculateBlockSize(limit, ledger, first, taken);
            try (BlockAwareSegmentInputStreamImpl block = new BlockAwareSegmentInputStreamImpl(ledger, first, size)) {
                bytes += drain(block, buffer);
                first = block.getEndEntryId() + 1;
                taken += block.getBlockEntryBytesCount();
            }
        }
        return answer(began, bytes);
    }

    /**
     * Reads the ledger "ledger" of the attempt "uuid" in batches, and lets go of each: "seconds" and "bytes". It lies in
     * a "tier", or as a MapFile under a "uri".
     */
    static ObjectNode reader(JsonNode request) throws Exception {
        if (!request.equals(read)) {
            handle = request.has("uri") ? FileCommands.open(request) : openInTier(request);
            read = request;
        }
        long bytes = 0;
        long last = handle.getLastAddConfirmed();
        long began = System.nanoTime();
        for (long first = 0; first <= last; first += BATCH) {
            try (LedgerEntries entries = handle.readAsync(first, Math.min(last, first + BATCH - 1)).get()) {
                for (LedgerEntry entry : entries) {
                    bytes += entry.getLength();
                }
            }
        }
        return answer(began, bytes);
    }

    private static ReadHandle openInTier(JsonNode request) throws Exception {
        if (tier != null) {
            tier.close();
        }
        tier = Tier.open(request);
        long ledgerId = request.required("ledger").asLong();
        return tier.offloader()
                .readOffloaded(ledgerId, BlobCommands.uuid(request), BlobCommands.driverMetadata(tier, request))
                .get();
    }

    private static long drain(InputStream block, byte[] buffer) throws Exception {
        long bytes = 0;
        for (int read = block.read(buffer, 0, buffer.length); read >= 0; read = block.read(buffer, 0, buffer.length)) {
            bytes += read;
        }
        return bytes;
    }

    private static ObjectNode answer(long began, long bytes) {
        return Oracle.JSON.createObjectNode()
                .put("seconds", (System.nanoTime() - began) / 1e9)
                .put("bytes", bytes);
    }
}
