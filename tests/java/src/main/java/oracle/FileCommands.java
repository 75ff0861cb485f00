package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.common.util.OrderedScheduler;
import org.apache.bookkeeper.mledger.offload.filesystem.impl.FileSystemManagedLedgerOffloader;
import org.apache.hadoop.conf.Configuration;
import org.apache.pulsar.common.policies.data.OffloadPoliciesImpl;

/** Hadoop MapFiles, by {@link FileSystemManagedLedgerOffloader}. */
final class FileCommands {
    private static final OrderedScheduler SCHEDULER = BlobCommands.scheduler("files");

    private FileCommands() {}

    /** Writes the ledger of the request as a MapFile of the attempt "uuid". */
    static ObjectNode offload(JsonNode request) throws Exception {
        MemoryLedger ledger = MemoryLedger.of(request);
        return withOffloader(request, offloader -> {
            offloader
                    .offload(ledger, BlobCommands.uuid(request), BlobCommands.names(request))
                    .get(BlobCommands.WITHIN_S, TimeUnit.SECONDS);
            return Oracle.JSON.createObjectNode();
        });
    }

    /** Reads the ledger "ledger" of the attempt "uuid"; see Reading. */
    static ObjectNode read(JsonNode request) throws Exception {
        long ledgerId = request.required("ledger").asLong();
        return withOffloader(request, offloader -> Reading.read(request, () -> offloader
                .readOffloaded(ledgerId, BlobCommands.uuid(request), BlobCommands.names(request))
                .get()));
    }

    /** A handle on the ledger "ledger" of the attempt "uuid", of an offloader that stays open. */
    static ReadHandle open(JsonNode request) throws Exception {
        return offloader(request)
                .readOffloaded(
                        request.required("ledger").asLong(), BlobCommands.uuid(request), BlobCommands.names(request))
                .get();
    }

    private interface Use {
        ObjectNode with(FileSystemManagedLedgerOffloader offloader) throws Exception;
    }

    private static ObjectNode withOffloader(JsonNode request, Use use) throws Exception {
        FileSystemManagedLedgerOffloader offloader = offloader(request);
        try {
            return use.with(offloader);
        } finally {
            offloader.close();
        }
    }

    /** The offloader for the folder "uri", with the Hadoop "settings" of its profile. */
    private static FileSystemManagedLedgerOffloader offloader(JsonNode request) throws Exception {
        Configuration profile = new Configuration(false);
        request.path("settings").fields().forEachRemaining(
                setting -> profile.set(setting.getKey(), setting.getValue().asText()));
        Path path = Files.createTempFile("oracle-profile", ".xml");
        try {
            try (OutputStream out = Files.newOutputStream(path)) {
                profile.writeXml(out);
            }
            Properties properties = new Properties();
            properties.put("managedLedgerOffloadDriver", "filesystem");
            properties.put("fileSystemURI", request.required("uri").asText());
            properties.put("fileSystemProfilePath", path.toString());
            return FileSystemManagedLedgerOffloader.create(
                    OffloadPoliciesImpl.create(properties), SCHEDULER, BlobCommands.noStats());
        } finally {
            Files.delete(path);
        }
    }
}
