package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.apache.bookkeeper.client.LedgerMetadataBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.impl.LedgerEntriesImpl;
import org.apache.bookkeeper.client.impl.LedgerEntryImpl;
import org.apache.bookkeeper.net.BookieId;

/** A closed ledger in memory, as a broker would hand it to an offloader. */
final class MemoryLedger implements ReadHandle {
    private static final long CREATED_MS = 1_700_000_000_000L;

    private final long ledgerId;
    private final List<byte[]> payloads;
    private final long length;
    private final LedgerMetadata metadata;

    MemoryLedger(long ledgerId, List<byte[]> payloads) {
        this.ledgerId = ledgerId;
        this.payloads = payloads;
        this.length = payloads.stream().mapToLong(payload -> payload.length).sum();
        this.metadata = LedgerMetadataBuilder.create()
                .withId(ledgerId)
                .withMetadataFormatVersion(3)
                .withEnsembleSize(1)
                .withWriteQuorumSize(1)
                .withAckQuorumSize(1)
                .withDigestType(DigestType.CRC32C)
                .withPassword(new byte[0])
                .newEnsembleEntry(0, List.of(BookieId.parse("bookie-0:3181")))
                .withCreationTime(CREATED_MS)
                .storingCreationTime(true)
                .withClosedState()
                .withLastEntryId(payloads.size() - 1L)
                .withLength(length)
                .build();
    }

    /** The ledger "ledger" of a request: its "entries", again and again if it has a "count" of more than they are. */
    static MemoryLedger of(JsonNode request) throws IOException {
        List<EntryFile.Stored> stored = EntryFile.read(Path.of(request.required("entries").asText()));
        int count = request.path("count").asInt(stored.size());
        List<byte[]> payloads = IntStream.range(0, count)
                .mapToObj(i -> stored.get(i % stored.size()).payload())
                .toList();
        return new MemoryLedger(request.required("ledger").asLong(), payloads);
    }

    @Override
    public long getId() {
        return ledgerId;
    }

    @Override
    public LedgerMetadata getLedgerMetadata() {
        return metadata;
    }

    @Override
    public CompletableFuture<LedgerEntries> readAsync(long first, long last) {
        List<LedgerEntry> entries = new ArrayList<>();
        for (long id = first; id <= last; id++) {
            byte[] payload = payloads.get((int) id);
            entries.add(LedgerEntryImpl.create(ledgerId, id, payload.length, Unpooled.wrappedBuffer(payload)));
        }
        return CompletableFuture.completedFuture(LedgerEntriesImpl.create(entries));
    }

    @Override
    public CompletableFuture<LedgerEntries> readUnconfirmedAsync(long first, long last) {
        return readAsync(first, last);
    }

    @Override
    public CompletableFuture<Long> readLastAddConfirmedAsync() {
        return CompletableFuture.completedFuture(getLastAddConfirmed());
    }

    @Override
    public CompletableFuture<Long> tryReadLastAddConfirmedAsync() {
        return readLastAddConfirmedAsync();
    }

    @Override
    public CompletableFuture<LastConfirmedAndEntry> readLastAddConfirmedAndEntryAsync(
            long entryId, long timeoutMs, boolean parallel) {
        return CompletableFuture.failedFuture(new UnsupportedOperationException());
    }

    @Override
    public CompletableFuture<Void> closeAsync() {
        return CompletableFuture.completedFuture(null);
    }

    @Override
    public long getLastAddConfirmed() {
        return payloads.size() - 1L;
    }

    @Override
    public long getLength() {
        return length;
    }

    @Override
    public boolean isClosed() {
        return true;
    }
}
