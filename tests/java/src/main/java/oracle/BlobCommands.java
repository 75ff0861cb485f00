package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.buffer.Unpooled;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.common.util.OrderedScheduler;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.LedgerOffloader.OffloadHandle;
import org.apache.bookkeeper.mledger.LedgerOffloader.OffloadHandle.OfferEntryResult;
import org.apache.bookkeeper.mledger.LedgerOffloader.OffloadResult;
import org.apache.bookkeeper.mledger.LedgerOffloaderStats;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.impl.EntryImpl;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.OffloadContext;

/** PIP-17 and streaming objects, by Pulsar's BlobStoreManagedLedgerOffloader; each request opens one of its own. */
final class BlobCommands {
    static final long WITHIN_S = 120;

    private BlobCommands() {}

    /** Writes the ledger of the request as a PIP-17 object of the attempt "uuid"; "seconds": how long that took. */
    static ObjectNode offload(JsonNode request) throws Exception {
        MemoryLedger ledger = MemoryLedger.of(request);
        try (Tier tier = Tier.open(request)) {
            long began = System.nanoTime();
            tier.offloader().offload(ledger, uuid(request), names(request)).get(WITHIN_S, TimeUnit.SECONDS);
            double seconds = (System.nanoTime() - began) / 1e9;
            tier.save();
            return Oracle.JSON.createObjectNode().put("seconds", seconds);
        }
    }

    /** Writes the "entries", of any ledgers, as one streaming object of the attempt "uuid"; see LedgerInfos. */
    static ObjectNode stream(JsonNode request) throws Exception {
        List<EntryFile.Stored> entries = EntryFile.read(Path.of(request.required("entries").asText()));
        EntryFile.Stored first = entries.get(0);
        ManagedLedger topic = LedgerInfos.managedLedger(request.path("closed"));
        try (Tier tier = Tier.open(request)) {
            OffloadHandle handle = tier.offloader()
                    .streamingOffload(topic, uuid(request), first.ledgerId(), first.entryId(), names(request))
                    .get(WITHIN_S, TimeUnit.SECONDS);
            for (EntryFile.Stored stored : entries) {
                offer(handle, EntryImpl.create(
                        stored.ledgerId(), stored.entryId(), Unpooled.wrappedBuffer(stored.payload())));
            }
            handle.close();
            OffloadResult result = handle.getOffloadResultAsync().get(WITHIN_S, TimeUnit.SECONDS);
            tier.save();
            return Oracle.JSON.createObjectNode()
                    .put("begin", result.beginLedger + ":" + result.beginEntry)
                    .put("end", result.endLedger + ":" + result.endEntry);
        }
    }

    /**
     * Reads the ledger "ledger" of the attempt "uuid", or by its offload "context" (the protobuf's bytes in hex): so a
     * ledger that lies in several streaming objects. See Reading.
     */
    static ObjectNode read(JsonNode request) throws Exception {
        long ledgerId = request.required("ledger").asLong();
        try (Tier tier = Tier.open(request)) {
            if (!request.has("context")) {
                return Reading.read(request, () -> tier.offloader()
                        .readOffloaded(ledgerId, uuid(request), driverMetadata(tier, request))
                        .get());
            }
            byte[] record = HexFormat.of().parseHex(request.get("context").asText());
            OffloadContext context = OffloadContext.parseFrom(record);
            return Reading.read(request, () -> tier.offloader()
                    .readOffloaded(ledgerId, context, driverMetadata(tier, request))
                    .get());
        }
    }

    /** What a ledger's record says of its driver, which readers are given. */
    static Map<String, String> driverMetadata(Tier tier, JsonNode request) {
        Map<String, String> metadata = new HashMap<>(tier.offloader().getOffloadDriverMetadata());
        metadata.putAll(names(request));
        return metadata;
    }

    static OrderedScheduler scheduler(String name) {
        return OrderedScheduler.newSchedulerBuilder().numThreads(2).name("oracle-" + name).build();
    }

    static LedgerOffloaderStats noStats() {
        return LedgerOffloaderStats.create(false, false, null, 0);
    }

    static UUID uuid(JsonNode request) {
        return UUID.fromString(request.required("uuid").asText());
    }

    /** What a broker tells of the topic. */
    static Map<String, String> names(JsonNode request) {
        return Map.of("ManagedLedgerName", request.required("managed_ledger").asText());
    }

    private static void offer(OffloadHandle handle, Entry entry) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WITHIN_S);
        OfferEntryResult result = handle.offerEntry(entry);
        while (result == OfferEntryResult.FAIL_BUFFER_FULL && System.nanoTime() < end) {
            Thread.sleep(5);
            result = handle.offerEntry(entry);
        }
        if (result != OfferEntryResult.SUCCESS) {
            throw new IllegalStateException(
                    "entry " + entry.getLedgerId() + ":" + entry.getEntryId() + " was not taken: " + result);
        }
    }
}
