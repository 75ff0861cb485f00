package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/** Ledgers of a BookKeeper, written and read by its own client. Clients and open ledgers are kept. */
final class BookKeeperLedgers {
    private static final int WITHIN_SECONDS = 120;
    private static final int READ_AT_ONCE = 1000;

    private static final Map<String, BookKeeper> CLIENTS = new HashMap<>();
    private static final Map<Long, WriteHandle> OPEN = new HashMap<>();

    private BookKeeperLedgers() {}

    /**
     * Creates a ledger in the cluster at "uri" (BookKeeper's metadataServiceUri), by "ensemble", "write_quorum",
     * "ack_quorum", "digest", "password" and "custom" metadata, all of them text: its "ledger". Other settings of the
     * client in "settings".
     */
    static ObjectNode create(JsonNode request) throws Exception {
        Map<String, byte[]> custom = new HashMap<>();
        request.path("custom").fields().forEachRemaining(
                each -> custom.put(each.getKey(), each.getValue().asText().getBytes(StandardCharsets.UTF_8)));
        WriteHandle ledger = within(client(request).newCreateLedgerOp()
                .withEnsembleSize(request.required("ensemble").asInt())
                .withWriteQuorumSize(request.required("write_quorum").asInt())
                .withAckQuorumSize(request.required("ack_quorum").asInt())
                .withDigestType(DigestType.valueOf(request.required("digest").asText()))
                .withPassword(password(request))
                .withCustomMetadata(custom)
                .withWriteFlags(WriteFlag.NONE)
                .execute());
        OPEN.put(ledger.getId(), ledger);
        return Oracle.JSON.createObjectNode().put("ledger", ledger.getId());
    }

    /** Appends the payloads of a file of "entries" to a "ledger"; answers once all are acknowledged. */
    static ObjectNode append(JsonNode request) throws Exception {
        WriteHandle ledger = OPEN.get(request.required("ledger").asLong());
        CompletableFuture<?> last = CompletableFuture.completedFuture(null);
        for (EntryFile.Stored entry : EntryFile.read(Path.of(request.required("entries").asText()))) {
            last = ledger.appendAsync(entry.payload());
        }
        within(last);
        return Oracle.JSON.createObjectNode();
    }

    /** Closes a "ledger". */
    static ObjectNode close(JsonNode request) throws Exception {
        within(OPEN.remove(request.required("ledger").asLong()).closeAsync());
        return Oracle.JSON.createObjectNode();
    }

    /** Deletes a "ledger". */
    static ObjectNode delete(JsonNode request) throws Exception {
        within(client(request).newDeleteLedgerOp().withLedgerId(request.required("ledger").asLong()).execute());
        return Oracle.JSON.createObjectNode();
    }

    /**
     * Reads all confirmed entries of a "ledger" without recovery, in batches if "batches" are wanted: the "seconds" that
     * took, without the opening, how many "entries" and their "bytes".
     */
    static ObjectNode time(JsonNode request) throws Exception {
        long entries = 0;
        long bytes = 0;
        boolean batches = request.path("batches").asBoolean();
        try (ReadHandle ledger = within(client(request).newOpenLedgerOp()
                .withLedgerId(request.required("ledger").asLong())
                .withDigestType(DigestType.valueOf(request.required("digest").asText()))
                .withPassword(password(request))
                .withRecovery(false)
                .execute())) {
            long began = System.nanoTime();
            long last = ledger.getLastAddConfirmed();
            while (entries <= last) {
                CompletableFuture<LedgerEntries> read = batches
                        ? ledger.batchReadAsync(entries, READ_AT_ONCE, 5 << 20)
                        : ledger.readAsync(entries, Math.min(last, entries + READ_AT_ONCE - 1));
                try (LedgerEntries found = within(read)) {
                    for (LedgerEntry entry : found) {
                        bytes += entry.getLength() - bytes; // the ledger's up to this one
                        entries++;
                    }
                }
            }
            return Oracle.JSON.createObjectNode()
                    .put("seconds", (System.nanoTime() - began) / 1e9)
                    .put("entries", entries)
                    .put("bytes", bytes);
        }
    }

    private static byte[] password(JsonNode request) {
        return request.path("password").asText("").getBytes(StandardCharsets.UTF_8);
    }

    private static <T> T within(CompletableFuture<T> future) throws Exception {
        return future.get(WITHIN_SECONDS, TimeUnit.SECONDS);
    }

    private static BookKeeper client(JsonNode request) throws Exception {
        String key = request.required("uri").asText() + request.path("settings");
        BookKeeper known = CLIENTS.get(key);
        if (known == null) {
            ClientConfiguration configuration = new ClientConfiguration();
            configuration.setMetadataServiceUri(request.required("uri").asText());
            configuration.setThrottleValue(0);
            configuration.setNettyMaxFrameSizeBytes(5_253_120);
            request.path("settings").fields().forEachRemaining(
                    each -> configuration.setProperty(each.getKey(), each.getValue().asText()));
            known = BookKeeper.newBuilder(configuration).build();
            CLIENTS.put(key, known);
        }
        return known;
    }
}
