package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.ConsumerCryptoFailureAction;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.ReaderBuilder;
import org.apache.pulsar.client.api.TypedMessageBuilder;

/** Messages of Pulsar's own client: encrypted, chunked, compressed, and as readers of any kind see them. Bytes are base64. */
final class Messages {
    private static final int WITHIN_S = 60;

    private Messages() {}

    /**
     * Sends the "messages" to the "topic". Each may have a "value" (null without), "key", "ordering_key", "properties",
     * "event_ms", "deliver_at_ms". With "batch" messages of so many are batched, with "chunk_bytes" larger ones are cut;
     * "compression" by name; "encrypt_for" names keys, whose public ones are in "key_folder" as NAME.pub.
     */
    static ObjectNode produce(JsonNode request) throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        try (PulsarClient client = connect(request); Producer<byte[]> producer = producer(client, request)) {
            for (JsonNode message : request.required("messages")) {
                sent.add(message(producer, message).sendAsync());
            }
            producer.flush();
            for (CompletableFuture<MessageId> each : sent) {
                each.get(WITHIN_S, TimeUnit.SECONDS);
            }
        }
        return Oracle.JSON.createObjectNode();
    }

    /**
     * What a reader gets of the "topic" from its first message to that whose value is "until", or to the last that it is
     * shown. Private keys are in "key_folder" as NAME.pem; "crypto_failure_action" and "compacted" as of Pulsar's readers.
     */
    static ObjectNode consume(JsonNode request) throws Exception {
        ArrayNode read = Oracle.JSON.createArrayNode();
        byte[] until = request.has("until") ? request.get("until").binaryValue() : null;
        ReaderBuilder<byte[]> builder;
        try (PulsarClient client = connect(request)) {
            builder = client.newReader()
                    .topic(request.required("topic").asText())
                    .startMessageId(MessageId.earliest)
                    .readCompacted(request.path("compacted").asBoolean())
                    .cryptoFailureAction(ConsumerCryptoFailureAction.valueOf(
                            request.path("crypto_failure_action").asText("FAIL")));
            if (request.has("key_folder")) {
                builder.cryptoKeyReader(new Keys(Path.of(request.get("key_folder").asText())));
            }
            try (Reader<byte[]> reader = builder.create()) {
                boolean more = true;
                while (more && (until != null || reader.hasMessageAvailable())) {
                    Message<byte[]> message = reader.readNext(WITHIN_S, TimeUnit.SECONDS);
                    if (message == null) {
                        throw new IllegalStateException("no message after " + read.size());
                    }
                    describe(message, read.addObject());
                    more = until == null || !Arrays.equals(until, message.getData());
                }
            }
        }
        return Oracle.JSON.createObjectNode().set("read", read);
    }

    private static Producer<byte[]> producer(PulsarClient client, JsonNode request) throws Exception {
        int batch = request.path("batch").asInt();
        ProducerBuilder<byte[]> builder = client.newProducer()
                .topic(request.required("topic").asText())
                .sendTimeout(0, TimeUnit.SECONDS)
                .blockIfQueueFull(true)
                .compressionType(CompressionType.valueOf(request.path("compression").asText("NONE")))
                .enableBatching(batch > 0);
        if (batch > 0) {
            builder.batchingMaxMessages(batch).batchingMaxPublishDelay(WITHIN_S, TimeUnit.SECONDS);
        }
        if (request.has("chunk_bytes")) {
            builder.enableChunking(true).chunkMaxMessageSize(request.get("chunk_bytes").asInt());
        }
        if (request.has("encrypt_for")) {
            builder.cryptoKeyReader(new Keys(Path.of(request.required("key_folder").asText())));
            request.get("encrypt_for").forEach(name -> builder.addEncryptionKey(name.asText()));
        }
        return builder.create();
    }

    private static TypedMessageBuilder<byte[]> message(Producer<byte[]> producer, JsonNode message) throws IOException {
        TypedMessageBuilder<byte[]> built = producer.newMessage()
                .value(message.has("value") ? message.get("value").binaryValue() : null);
        if (message.has("key")) {
            built.key(message.get("key").asText());
        }
        if (message.has("ordering_key")) {
            built.orderingKey(message.get("ordering_key").binaryValue());
        }
        if (message.has("event_ms")) {
            built.eventTime(message.get("event_ms").asLong());
        }
        if (message.has("deliver_at_ms")) {
            built.deliverAt(message.get("deliver_at_ms").asLong());
        }
        message.path("properties").fields().forEachRemaining(
                each -> built.property(each.getKey(), each.getValue().asText()));
        return built;
    }

    private static void describe(Message<byte[]> message, ObjectNode as) {
        as.put("id", message.getMessageId().toByteArray())
                .put("value", message.getData())
                .put("key", message.hasKey() ? message.getKeyBytes() : null)
                .put("ordering_key", message.hasOrderingKey() ? message.getOrderingKey() : null)
                .put("published_ms", message.getPublishTime())
                .put("event_ms", message.getEventTime())
                .put("producer", message.getProducerName())
                .put("sequence_id", message.getSequenceId())
                .put("replicated_from", message.isReplicated() ? message.getReplicatedFrom() : null)
                .put("encrypted", message.getEncryptionCtx().isPresent());
        ObjectNode properties = as.putObject("properties");
        message.getProperties().forEach(properties::put);
    }

    private static PulsarClient connect(JsonNode request) throws Exception {
        return PulsarClient.builder().serviceUrl(request.required("service_url").asText()).build();
    }

    /** Keys in files of a folder. */
    private record Keys(Path folder) implements CryptoKeyReader {
        @Override
        public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
            return read(name + ".pub");
        }

        @Override
        public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
            return read(name + ".pem");
        }

        private EncryptionKeyInfo read(String file) {
            try {
                return new EncryptionKeyInfo(Files.readAllBytes(folder.resolve(file)), Map.of());
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
