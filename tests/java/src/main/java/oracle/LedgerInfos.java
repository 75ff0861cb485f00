package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Proxy;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.ManagedLedgerInfo.LedgerInfo;

/** The little of a managed ledger that the streaming offloader asks for: what is known of each ledger. */
final class LedgerInfos {
    private LedgerInfos() {}

    /** A managed ledger: the ledgers in "closed" (id → {entries, size, timestamp_ms}) are closed, all others open. */
    static ManagedLedger managedLedger(JsonNode closed) {
        return (ManagedLedger) Proxy.newProxyInstance(
                ManagedLedger.class.getClassLoader(),
                new Class<?>[] {ManagedLedger.class},
                (proxy, method, arguments) -> {
                    if (method.getName().equals("getLedgerInfo")) {
                        return CompletableFuture.completedFuture(info(closed, (Long) arguments[0]));
                    }
                    throw new UnsupportedOperationException(method.getName());
                });
    }

    private static LedgerInfo info(JsonNode closed, long ledgerId) {
        LedgerInfo.Builder info = LedgerInfo.newBuilder().setLedgerId(ledgerId);
        JsonNode known = closed.path(Long.toString(ledgerId));
        if (!known.isMissingNode()) {
            info.setEntries(known.required("entries").asLong())
                    .setSize(known.required("size").asLong())
                    .setTimestamp(known.required("timestamp_ms").asLong());
        }
        return info.build();
    }
}
