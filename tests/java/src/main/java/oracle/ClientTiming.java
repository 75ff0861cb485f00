package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;

/** How long Pulsar's client takes to read a topic from a broker. The client is kept for the next round. */
final class ClientTiming {
    private static final int DEADLINE_S = 60; // for one message

    private static String url;
    private static PulsarClient client;

    private ClientTiming() {}

    /**
     * Reads "count" messages of the "topic" from its first, by a reader whose queue takes "queue" of them: "seconds" with
     * the reader's making, "bytes", and the payloads "first" and "last", which are text.
     */
    static ObjectNode reader(JsonNode request) throws Exception {
        connect(request.required("service_url").asText());
        String topic = request.required("topic").asText();
        int count = request.required("count").asInt();
        int queue = request.required("queue").asInt();
        long bytes = 0;
        byte[] first = null;
        byte[] last = null;
        long began = System.nanoTime();
        try (Reader<byte[]> reader = client.newReader()
                .topic(topic)
                .startMessageId(MessageId.earliest)
                .receiverQueueSize(queue)
                .create()) {
            for (int i = 0; i < count; i++) {
                Message<byte[]> message = reader.readNext(DEADLINE_S, TimeUnit.SECONDS);
                if (message == null) {
                    throw new IllegalStateException("no message after " + i + " of " + count);
                }
                last = message.getData();
                first = first == null ? last : first;
                bytes += last.length;
            }
        }
        return Oracle.JSON.createObjectNode()
                .put("seconds", (System.nanoTime() - began) / 1e9)
                .put("bytes", bytes)
                .put("first", new String(first, StandardCharsets.UTF_8))
                .put("last", new String(last, StandardCharsets.UTF_8));
    }

    private static void connect(String serviceUrl) throws Exception {
        if (!serviceUrl.equals(url)) {
            if (client != null) {
                client.close();
            }
            client = PulsarClient.builder().serviceUrl(serviceUrl).build();
            url = serviceUrl;
        }
    }
}
