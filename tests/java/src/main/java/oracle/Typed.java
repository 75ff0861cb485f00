package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import com.google.protobuf.Option;
import com.google.protobuf.Type;
import java.sql.Time;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.avro.reflect.Nullable;
import org.apache.bookkeeper.proto.DataFormats.LedgerMetadataFormat;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.client.impl.schema.SchemaInfoImpl;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;

/** What Pulsar's client writes and reads by each type of schema. */
final class Typed {
    private static final int WITHIN_S = 60;

    private Typed() {}

    /** Values of a schema that one producer sends. */
    private record Sent<T>(Schema<T> schema, List<T> values) {}

    /** The first version of a record. */
    static final class First {
        public static class Order {
            public long id;
            public String name;
            public double price;
        }
    }

    /** The second, which is what readers want. */
    static final class Second {
        public static class Order {
            public long id;
            public String name;
            public double price;
            @Nullable public String note;
            @Nullable public Place place;
            public List<String> tags;
            public Map<String, Integer> counts;
            public Kind kind;
            public byte[] data;
        }
    }

    public enum Kind { SMALL, LARGE }

    public static class Place {
        public int x;
        public float y;
    }

    /**
     * Sends values of the "kind" to the "topic", and reads them by the schema of its last: "read", as Values shows them.
     * The kind DYNAMIC has the "definition" of a PROTOBUF_NATIVE schema, and "payloads" as base64.
     */
    static ObjectNode send(JsonNode request) throws Exception {
        String topic = request.required("topic").asText();
        String kind = request.required("kind").asText();
        List<Sent<?>> all = kind.equals("DYNAMIC") ? dynamic(request) : sent(kind);
        ArrayNode read = Oracle.JSON.createArrayNode();
        try (PulsarClient client =
                PulsarClient.builder().serviceUrl(request.required("service_url").asText()).build()) {
            int count = 0;
            for (Sent<?> each : all) {
                count += produce(client, topic, each);
            }
            Schema<?> schema = kind.equals("DYNAMIC") ? Schema.AUTO_CONSUME() : all.get(all.size() - 1).schema();
            try (Reader<?> reader =
                    client.newReader(schema).topic(topic).startMessageId(MessageId.earliest).create()) {
                for (int i = 0; i < count; i++) {
                    Message<?> message = reader.readNext(WITHIN_S, TimeUnit.SECONDS);
                    read.add(Values.shown(message.getValue(), kind.equals("PROTOBUF")));
                }
            }
        }
        return Oracle.JSON.createObjectNode().set("read", read);
    }

    private static <T> int produce(PulsarClient client, String topic, Sent<T> sent) throws Exception {
        try (Producer<T> producer = client.newProducer(sent.schema()).topic(topic).enableBatching(false).create()) {
            for (T value : sent.values()) {
                producer.newMessage().value(value).send();
            }
        }
        return sent.values().size();
    }

    private static List<Sent<?>> dynamic(JsonNode request) {
        SchemaInfo info = SchemaInfoImpl.builder()
                .name("").type(SchemaType.PROTOBUF_NATIVE).properties(Map.of())
                .schema(request.required("definition").asText().getBytes()).build();
        List<byte[]> payloads = new ArrayList<>();
        request.required("payloads").forEach(each -> payloads.add(Base64.getDecoder().decode(each.asText())));
        return List.of(new Sent<>(Schema.AUTO_PRODUCE_BYTES(Schema.generic(info)), payloads));
    }

    private static List<Sent<?>> sent(String kind) {
        long time = 1_763_000_000_123L;
        return switch (kind) {
            case "BYTES" -> of(Schema.BYTES, new byte[0], new byte[] {0, -1, 7});
            case "STRING" -> of(Schema.STRING, "", "Größe 冷");
            case "BOOLEAN" -> of(Schema.BOOL, true, false);
            case "INT8" -> of(Schema.INT8, Byte.MIN_VALUE, Byte.MAX_VALUE);
            case "INT16" -> of(Schema.INT16, Short.MIN_VALUE, Short.MAX_VALUE);
            case "INT32" -> of(Schema.INT32, Integer.MIN_VALUE, Integer.MAX_VALUE);
            case "INT64" -> of(Schema.INT64, Long.MIN_VALUE, Long.MAX_VALUE);
            case "FLOAT" -> of(Schema.FLOAT, -0.1f, Float.MAX_VALUE, 3e-45f);
            case "DOUBLE" -> of(Schema.DOUBLE, -0.1, Double.MAX_VALUE, 5e-324);
            case "DATE" -> of(Schema.DATE, new Date(time), new Date(-1));
            case "TIME" -> of(Schema.TIME, new Time(time), new Time(0), new Time(-1));
            case "TIMESTAMP" -> of(Schema.TIMESTAMP, new Timestamp(time), new Timestamp(-1));
            case "INSTANT" -> of(Schema.INSTANT, Instant.ofEpochSecond(time, 123_456_789), Instant.ofEpochSecond(-1, 5));
            case "LOCAL_DATE" -> of(Schema.LOCAL_DATE, LocalDate.of(2024, 2, 29), LocalDate.of(1, 1, 1));
            case "LOCAL_TIME" -> of(Schema.LOCAL_TIME, LocalTime.of(23, 59, 59, 999_999_999), LocalTime.MIDNIGHT);
            case "LOCAL_DATE_TIME" -> of(Schema.LOCAL_DATE_TIME,
                    LocalDateTime.of(2024, 2, 29, 1, 2, 3, 456_789_012), LocalDateTime.of(1, 1, 1, 0, 0));
            case "JSON" -> List.of(
                    new Sent<>(Schema.JSON(First.Order.class), first()),
                    new Sent<>(Schema.JSON(Second.Order.class), second()));
            case "AVRO" -> List.of(
                    new Sent<>(avro(First.Order.class), first()), new Sent<>(avro(Second.Order.class), second()));
            case "KEY_VALUE INLINE" -> pairs(Schema.STRING, Schema.INT64, KeyValueEncodingType.INLINE, "ü", 7L);
            case "KEY_VALUE SEPARATED" -> pairs(
                    Schema.AVRO(First.Order.class), avro(Second.Order.class), KeyValueEncodingType.SEPARATED,
                    first().get(1), second().get(0));
            case "KEY_VALUE PROTOBUF_NATIVE" -> pairs(Schema.INT32, Schema.PROTOBUF_NATIVE(LedgerMetadataFormat.class),
                    KeyValueEncodingType.INLINE, 5, ledgers()[1]);
            case "PROTOBUF" -> of(Schema.PROTOBUF(LedgerMetadataFormat.class), ledgers());
            case "PROTOBUF_NATIVE" -> of(Schema.PROTOBUF_NATIVE(LedgerMetadataFormat.class), ledgers());
            case "PROTOBUF_NATIVE proto3" -> of(Schema.PROTOBUF_NATIVE(Type.class), Type.getDefaultInstance(),
                    Type.newBuilder().setName("ü").addOneofs("a").addOneofs("").setSyntaxValue(1)
                            .addOptions(Option.newBuilder().setName("b"))
                            .addFields(com.google.protobuf.Field.newBuilder().setKindValue(9).setNumber(-3).setPacked(true))
                            .build());
            default -> throw new IllegalArgumentException("no such kind: " + kind);
        };
    }

    @SafeVarargs
    private static <T> List<Sent<?>> of(Schema<T> schema, T... values) {
        return List.of(new Sent<>(schema, List.of(values)));
    }

    private static <K, V> List<Sent<?>> pairs(
            Schema<K> keys, Schema<V> values, KeyValueEncodingType encoding, K key, V value) {
        return of(Schema.KeyValue(keys, values, encoding), new KeyValue<>(key, value));
    }

    /** Without this a reader takes what an older version wrote for its own. */
    private static <T> Schema<T> avro(Class<T> of) {
        return Schema.AVRO(SchemaDefinition.<T>builder().withPojo(of).withSupportSchemaVersioning(true).build());
    }

    private static List<First.Order> first() {
        List<First.Order> orders = new ArrayList<>();
        for (String name : new String[] {null, "", "Größe"}) {
            First.Order order = new First.Order();
            order.id = Long.MAX_VALUE - orders.size();
            order.name = name;
            order.price = orders.size() / 3.0;
            orders.add(order);
        }
        return orders;
    }

    private static List<Second.Order> second() {
        Second.Order order = new Second.Order();
        order.id = -1;
        order.name = "second";
        order.note = "";
        order.place = new Place();
        order.place.x = Integer.MIN_VALUE;
        order.place.y = 0.5f; // in JSON as in a column
        order.tags = List.of("a", "冷");
        order.counts = new TreeMap<>(Map.of("one", 1, "two", 2));
        order.kind = Kind.LARGE;
        order.data = new byte[] {0, -1};
        Second.Order empty = new Second.Order();
        empty.tags = List.of();
        return List.of(order, empty);
    }

    private static LedgerMetadataFormat[] ledgers() {
        LedgerMetadataFormat least = LedgerMetadataFormat.newBuilder()
                .setQuorumSize(-1).setEnsembleSize(0).setLength(Long.MAX_VALUE)
                .setState(LedgerMetadataFormat.State.CLOSED).build();
        LedgerMetadataFormat more = least.toBuilder()
                .setLastEntryId(-5).setDigestType(LedgerMetadataFormat.DigestType.CRC32C)
                .setPassword(ByteString.copyFromUtf8("geheim"))
                .addSegment(LedgerMetadataFormat.Segment.newBuilder()
                        .setFirstEntryId(0).addEnsembleMember("a").addEnsembleMember("ü"))
                .addSegment(LedgerMetadataFormat.Segment.newBuilder().setFirstEntryId(9))
                .addCustomMetadata(LedgerMetadataFormat.cMetadataMapEntry.newBuilder().setKey("k")).build();
        return new LedgerMetadataFormat[] {least, more};
    }
}
