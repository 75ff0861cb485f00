package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.apache.bookkeeper.common.util.OrderedScheduler;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.BlobStoreManagedLedgerOffloader;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.OffsetsCache;
import org.apache.bookkeeper.mledger.offload.jcloud.provider.TieredStorageConfiguration;
import org.jclouds.blobstore.BlobStore;
import org.jclouds.blobstore.domain.Blob;
import org.jclouds.blobstore.domain.StorageMetadata;
import org.jclouds.io.Payload;
import org.jclouds.io.Payloads;

/**
 * Where objects lie, with Pulsar's offloader configured for it: a bucket of an S3 server, or a folder. Of a folder,
 * jclouds has a copy in memory (a container of its "transient" provider, which takes blocks of any size): made when the
 * tier is opened, and brought back by {@link #save}. In the folder each object is a file, and its user metadata a JSON
 * file beside it.
 */
final class Tier implements AutoCloseable {
    private static final String SIDECAR = ".metadata.json";
    private static final AtomicInteger CONTAINERS = new AtomicInteger();
    private static final OrderedScheduler SCHEDULER = BlobCommands.scheduler("offload");
    private static final OrderedScheduler READ_SCHEDULER = BlobCommands.scheduler("read");

    private static BlobStore memory;

    private final BlobStore blobs;
    private final String bucket;
    private final Path folder;
    private final OffsetsCache offsets = new OffsetsCache();
    private final BlobStoreManagedLedgerOffloader offloader;

    private Tier(Map<String, String> properties, Path folder, boolean partLengths) throws IOException {
        TieredStorageConfiguration plain = TieredStorageConfiguration.create(properties);
        plain.validate();
        this.bucket = plain.getBucket();
        this.folder = folder;
        BlobStore store = folder == null ? plain.getBlobStore() : memory(plain);
        this.blobs = partLengths ? withPartLengths(store) : store;
        TieredStorageConfiguration configuration = new TieredStorageConfiguration(properties) {
            @Override
            public BlobStore getBlobStore() {
                return blobs;
            }
        };
        this.offloader = BlobStoreManagedLedgerOffloader.create(
                configuration, Map.of(), SCHEDULER, READ_SCHEDULER, BlobCommands.noStats(), offsets);
        if (folder != null) {
            blobs.createContainerInLocation(null, bucket);
            load();
        }
    }

    /** Opens the "tier" of a request, with the offloader's "settings" as in broker.conf. */
    static Tier open(JsonNode request) throws IOException {
        Map<String, String> properties = new HashMap<>();
        request.path("settings").fields().forEachRemaining(
                setting -> properties.put(setting.getKey(), setting.getValue().asText()));
        boolean partLengths = request.path("part_lengths").asBoolean(true);
        JsonNode tier = request.required("tier");
        if (tier.has("folder")) {
            properties.put("managedLedgerOffloadDriver", "transient");
            properties.put("managedLedgerOffloadBucket", "container-" + CONTAINERS.incrementAndGet());
            return new Tier(properties, Path.of(tier.get("folder").asText()), partLengths);
        }
        String endpoint = tier.required("endpoint").asText();
        String region = tier.required("region").asText();
        System.setProperty("jclouds.regions", region); // else it asks Amazon where the bucket is
        System.setProperty("jclouds.region." + region + ".endpoint", endpoint);
        properties.put("managedLedgerOffloadDriver", "aws-s3");
        properties.put("managedLedgerOffloadBucket", tier.required("bucket").asText());
        properties.put("managedLedgerOffloadRegion", region);
        properties.put("managedLedgerOffloadServiceEndpoint", endpoint);
        properties.put("s3ManagedLedgerOffloadCredentialId", tier.required("access_key").asText());
        properties.put("s3ManagedLedgerOffloadCredentialSecret", tier.required("secret_key").asText());
        return new Tier(properties, null, partLengths);
    }

    /** Pulsar's offloader over this place; it ends with the tier. */
    BlobStoreManagedLedgerOffloader offloader() {
        return offloader;
    }

    @Override
    public void close() {
        if (folder == null) {
            blobs.getContext().close();
        } else {
            blobs.deleteContainer(bucket);
        }
        offsets.close();
    }

    private static BlobStore memory(TieredStorageConfiguration any) {
        if (memory == null) {
            memory = any.getBlobStore(); // takes a tenth of a second
        }
        return memory;
    }

    /** Brings what an offloader wrote to the folder, if there is one. */
    void save() throws IOException {
        if (folder == null) {
            return;
        }
        Files.createDirectories(folder);
        for (StorageMetadata listed : blobs.list(bucket)) {
            Blob blob = blobs.getBlob(bucket, listed.getName());
            ObjectNode sidecar = Oracle.JSON.createObjectNode().put("version", 1);
            sidecar.put("content_type", blob.getMetadata().getContentMetadata().getContentType());
            ObjectNode user = sidecar.putObject("user_metadata");
            blob.getMetadata().getUserMetadata().forEach(user::put);
            Oracle.JSON.writeValue(folder.resolve(listed.getName() + SIDECAR).toFile(), sidecar);
            try (InputStream data = blob.getPayload().openStream()) {
                Files.write(folder.resolve(listed.getName()), data.readAllBytes());
            }
        }
    }

    private void load() throws IOException {
        if (!Files.isDirectory(folder)) {
            return;
        }
        try (Stream<Path> files = Files.list(folder)) {
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                String name = file.getFileName().toString();
                if (name.endsWith(SIDECAR)) {
                    continue;
                }
                Map<String, String> user = new HashMap<>();
                Oracle.JSON.readTree(folder.resolve(name + SIDECAR).toFile()).path("user_metadata").fields()
                        .forEachRemaining(field -> user.put(field.getKey(), field.getValue().asText()));
                byte[] data = Files.readAllBytes(file);
                blobs.putBlob(bucket, blobs.blobBuilder(name).userMetadata(user).payload(data).build());
            }
        }
    }

    /** The same store, with the length of each part of an upload, which Pulsar's streaming writer does not tell. */
    private static BlobStore withPartLengths(BlobStore store) {
        return (BlobStore) Proxy.newProxyInstance(
                BlobStore.class.getClassLoader(), new Class<?>[] {BlobStore.class}, (proxy, method, arguments) -> {
                    if (method.getName().equals("uploadMultipartPart")) {
                        Payload part = (Payload) arguments[2];
                        if (part.getContentMetadata().getContentLength() == null) {
                            arguments[2] = Payloads.newByteArrayPayload(part.openStream().readAllBytes());
                        }
                    }
                    try {
                        return method.invoke(store, arguments);
                    } catch (InvocationTargetException error) {
                        throw error.getCause();
                    }
                });
    }
}
