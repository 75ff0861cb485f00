package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.transaction.Transaction;

/** Transactions of Pulsar's own client, which the other clients have not. */
final class Transactions {
    private static final int WITHIN_S = 60;

    private Transactions() {}

    /**
     * Sends what the "steps" say to the "topic", one after another. A step has "messages", to be sent as one batch if there
     * is more than one, each a "value" and perhaps a "transaction" by a name; or it has "commit" or "abort", a transaction's
     * name. Transactions that are not ended stay open. Answers the "ids" by name, most and least bits.
     */
    static ObjectNode send(JsonNode request) throws Exception {
        Map<String, Transaction> transactions = new HashMap<>();
        String topic = request.required("topic").asText();
        try (PulsarClient client = connect(request);
                Producer<byte[]> single = client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS)
                        .producerName("single").enableBatching(false).create();
                Producer<byte[]> batching = client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS)
                        .producerName("batching").batchingMaxPublishDelay(WITHIN_S, TimeUnit.SECONDS).create()) {
            for (JsonNode step : request.required("steps")) {
                if (step.has("messages")) {
                    JsonNode messages = step.get("messages");
                    send(client, messages.size() > 1 ? batching : single, messages, transactions);
                } else if (step.has("commit")) {
                    transactions.get(step.get("commit").asText()).commit().get(WITHIN_S, TimeUnit.SECONDS);
                } else {
                    transactions.get(step.required("abort").asText()).abort().get(WITHIN_S, TimeUnit.SECONDS);
                }
            }
        }
        ObjectNode ids = Oracle.JSON.createObjectNode();
        transactions.forEach((name, transaction) -> ids.putArray(name)
                .add(transaction.getTxnID().getMostSigBits())
                .add(transaction.getTxnID().getLeastSigBits()));
        return Oracle.JSON.createObjectNode().set("ids", ids);
    }

    /**
     * What a reader gets of the "topic" from its first message to the last that it is shown. The index and the broker's
     * timestamp are null where the broker gives none.
     */
    static ObjectNode read(JsonNode request) throws Exception {
        ArrayNode read = Oracle.JSON.createArrayNode();
        try (PulsarClient client = connect(request);
                Reader<byte[]> reader = client.newReader()
                        .topic(request.required("topic").asText())
                        .startMessageId(MessageId.earliest)
                        .create()) {
            while (reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext(WITHIN_S, TimeUnit.SECONDS);
                if (message == null) {
                    throw new IllegalStateException("no message after " + read.size());
                }
                MessageIdAdv id = (MessageIdAdv) message.getMessageId();
                read.addObject()
                        .put("ledger", id.getLedgerId())
                        .put("entry", id.getEntryId())
                        .put("batch_index", id.getBatchIndex())
                        .put("index", message.getIndex().orElse(null))
                        .put("broker_ms", message.getBrokerPublishTime().orElse(null))
                        .put("value", new String(message.getData(), StandardCharsets.UTF_8));
            }
        }
        return Oracle.JSON.createObjectNode().set("read", read);
    }

    private static void send(
            PulsarClient client, Producer<byte[]> producer, JsonNode messages, Map<String, Transaction> transactions)
            throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (JsonNode message : messages) {
            TypedMessageBuilder<byte[]> built = producer.newMessage();
            if (message.has("transaction")) {
                String name = message.get("transaction").asText();
                if (!transactions.containsKey(name)) {
                    transactions.put(name, client.newTransaction().withTransactionTimeout(1, TimeUnit.HOURS).build()
                            .get(WITHIN_S, TimeUnit.SECONDS));
                }
                built = producer.newMessage(transactions.get(name));
            }
            sent.add(built.value(message.required("value").asText().getBytes(StandardCharsets.UTF_8)).sendAsync());
        }
        producer.flush();
        for (CompletableFuture<MessageId> each : sent) {
            each.get(WITHIN_S, TimeUnit.SECONDS);
        }
    }

    private static PulsarClient connect(JsonNode request) throws Exception {
        return PulsarClient.builder()
                .serviceUrl(request.required("service_url").asText())
                .enableTransaction(true)
                .build();
    }
}
