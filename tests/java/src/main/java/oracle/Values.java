package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import java.math.BigInteger;
import java.sql.Time;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.util.Date;
import java.util.List;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.common.schema.KeyValue;

/** What a client reads, as JSON: bytes as base64, times as numbers of the smallest unit that a column has. */
final class Values {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    private Values() {}

    /** A value; "shallow" shows of a Protobuf message what its schema of the older type tells. */
    static JsonNode shown(Object value, boolean shallow) {
        if (value instanceof GenericRecord record) {
            return shown(record.getNativeObject(), shallow);
        } else if (value instanceof Message message) {
            return message(message, shallow);
        } else if (value instanceof KeyValue<?, ?> pair) {
            ObjectNode both = JSON.objectNode();
            both.set("key", shown(pair.getKey(), shallow));
            return both.set("value", shown(pair.getValue(), shallow));
        } else if (value instanceof Time time) {
            return JSON.numberNode(Math.floorMod(time.getTime(), 86_400_000L));
        } else if (value instanceof Date date) { // a Timestamp, too
            return JSON.numberNode(date.getTime() * 1000);
        } else if (value instanceof Instant instant) {
            long seconds = Math.multiplyExact(instant.getEpochSecond(), 1_000_000L);
            return JSON.numberNode(Math.addExact(seconds, instant.getNano() / 1000));
        } else if (value instanceof LocalDate date) {
            return JSON.numberNode(date.toEpochDay());
        } else if (value instanceof LocalTime time) {
            return JSON.numberNode(time.toNanoOfDay());
        } else if (value instanceof LocalDateTime time) {
            return shown(time.toInstant(ZoneOffset.UTC), shallow);
        } else if (value instanceof Float number) {
            return JSON.numberNode(number.doubleValue());
        }
        return Oracle.JSON.valueToTree(value);
    }

    private static ObjectNode message(Message message, boolean shallow) {
        ObjectNode shown = JSON.objectNode();
        for (FieldDescriptor field : message.getDescriptorForType().getFields()) {
            Object value = message.getField(field);
            boolean absent = !field.isRepeated() && field.hasPresence() && !message.hasField(field);
            boolean isPlain = field.getJavaType() != FieldDescriptor.JavaType.ENUM
                    && field.getJavaType() != FieldDescriptor.JavaType.MESSAGE;
            if (field.isMapField()) {
                ObjectNode entries = shown.putObject(field.getName());
                for (Object item : (List<?>) value) {
                    FieldDescriptor key = field.getMessageType().findFieldByName("key");
                    FieldDescriptor kept = field.getMessageType().findFieldByName("value");
                    Message entry = (Message) item;
                    entries.set(one(key, entry.getField(key), shallow).asText(), one(kept, entry.getField(kept), shallow));
                }
            } else if (field.isRepeated()) {
                ArrayNode items = shown.putArray(field.getName());
                for (Object item : (List<?>) value) {
                    items.add(one(field, item, shallow));
                }
            } else if (absent && !(shallow ? isPlain : field.hasDefaultValue())) {
                shown.putNull(field.getName());
            } else {
                shown.set(field.getName(), one(field, value, shallow));
            }
        }
        return shown;
    }

    private static JsonNode one(FieldDescriptor field, Object value, boolean shallow) {
        if (value instanceof Message message) {
            return shallow ? JSON.binaryNode(message.toByteArray()) : message(message, false);
        } else if (value instanceof EnumValueDescriptor symbol) {
            boolean isKnown = symbol.getIndex() >= 0;
            return shallow ? JSON.numberNode(symbol.getNumber())
                    : JSON.textNode(isKnown ? symbol.getName() : String.valueOf(symbol.getNumber()));
        } else if (value instanceof ByteString bytes) {
            return JSON.binaryNode(bytes.toByteArray());
        } else if (value instanceof Integer number && isUnsigned(field)) {
            return JSON.numberNode(Integer.toUnsignedLong(number));
        } else if (value instanceof Long number && isUnsigned(field)) {
            return JSON.numberNode(new BigInteger(Long.toUnsignedString(number)));
        }
        return shown(value, shallow);
    }

    private static boolean isUnsigned(FieldDescriptor field) {
        return switch (field.getType()) {
            case UINT32, UINT64, FIXED32, FIXED64 -> true;
            default -> false;
        };
    }
}
