package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HexFormat;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.common.util.OrderedExecutor;
import org.apache.bookkeeper.mledger.ManagedLedgerException.MetaStoreException;
import org.apache.bookkeeper.mledger.MetadataCompressionConfig;
import org.apache.bookkeeper.mledger.impl.MetaStore;
import org.apache.bookkeeper.mledger.impl.MetaStoreImpl;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.ManagedLedgerInfo;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.metadata.api.MetadataStoreConfig;
import org.apache.pulsar.metadata.api.Stat;
import org.apache.pulsar.metadata.impl.ZKMetadataStore;

/** What a broker does with managed ledgers' records in its ZooKeeper. */
final class MetaStores {
    private static final int WITHIN_SECONDS = 60;

    private MetaStores() {}

    /** The "record" of the managed ledger "name" below the root "url" of a ZooKeeper, and its "version" there. */
    static ObjectNode read(JsonNode request) throws Exception {
        return using(request, store -> {
            Found<ManagedLedgerInfo> found = read(store, request.required("name").asText());
            return Oracle.JSON.createObjectNode()
                    .put("version", found.stat().getVersion())
                    .set("record", Records.toJson(found.value()));
        });
    }

    /** Replaces the record of the managed ledger "name", which must be there, by "hex", in the "compression". */
    static ObjectNode update(JsonNode request) throws Exception {
        return using(request, store -> {
            String name = request.required("name").asText();
            Waiting<Void> written = new Waiting<>();
            ManagedLedgerInfo info = ManagedLedgerInfo.parseFrom(
                    HexFormat.of().parseHex(request.required("hex").asText()));
            store.asyncUpdateLedgerIds(name, info, read(store, name).stat(), written);
            written.answer.get(WITHIN_SECONDS, TimeUnit.SECONDS);
            return Oracle.JSON.createObjectNode();
        });
    }

    /** The managed ledgers' "names" of "topics". */
    static ObjectNode names(JsonNode request) {
        ObjectNode answer = Oracle.JSON.createObjectNode();
        ArrayNode names = answer.putArray("names");
        for (JsonNode topic : request.required("topics")) {
            names.add(TopicName.get(topic.asText()).getPersistenceNamingEncoding());
        }
        return answer;
    }

    private record Found<T>(T value, Stat stat) {}

    private interface Work {
        ObjectNode with(MetaStore store) throws Exception;
    }

    private static ObjectNode using(JsonNode request, Work work) throws Exception {
        OrderedExecutor executor = OrderedExecutor.newBuilder().numThreads(1).build();
        MetadataStoreConfig config = MetadataStoreConfig.builder().build();
        try (ZKMetadataStore store = new ZKMetadataStore(request.required("url").asText(), config, false)) {
            return work.with(new MetaStoreImpl(
                    store,
                    executor,
                    new MetadataCompressionConfig(request.path("compression").asText("NONE")),
                    MetadataCompressionConfig.noCompression));
        } finally {
            executor.shutdownNow();
        }
    }

    private static Found<ManagedLedgerInfo> read(MetaStore store, String name) throws Exception {
        Waiting<ManagedLedgerInfo> found = new Waiting<>();
        store.getManagedLedgerInfo(name, false, found);
        return found.answer.get(WITHIN_SECONDS, TimeUnit.SECONDS);
    }

    private static final class Waiting<T> implements MetaStore.MetaStoreCallback<T> {
        private final CompletableFuture<Found<T>> answer = new CompletableFuture<>();

        @Override
        public void operationComplete(T result, Stat stat) {
            answer.complete(new Found<>(result, stat));
        }

        @Override
        public void operationFailed(MetaStoreException error) {
            answer.completeExceptionally(error);
        }
    }
}
