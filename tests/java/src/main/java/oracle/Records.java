package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Message;
import com.google.protobuf.Parser;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.ManagedLedgerInfo;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.OffloadContext;

/** Pulsar's records, by its generated classes. */
final class Records {
    private static final Map<String, Parser<? extends Message>> PARSERS = Map.of(
            "ManagedLedgerInfo", ManagedLedgerInfo.parser(),
            "OffloadContext", OffloadContext.parser());

    private Records() {}

    /** The "record" of the bytes "hex", which is of "type". */
    static ObjectNode parse(JsonNode request) throws Exception {
        byte[] bytes = HexFormat.of().parseHex(request.required("hex").asText());
        return Oracle.JSON.createObjectNode()
                .set("record", toJson(PARSERS.get(request.required("type").asText()).parseFrom(bytes)));
    }

    /** The fields that are set, by name, as they stand; bytes in hex; fields that Pulsar does not know by number. */
    static ObjectNode toJson(Message message) {
        ObjectNode node = Oracle.JSON.createObjectNode();
        message.getAllFields().forEach((field, value) -> {
            if (field.isRepeated()) {
                ArrayNode values = node.putArray(field.getName());
                ((List<?>) value).forEach(each -> values.add(toValue(each)));
            } else {
                node.set(field.getName(), toValue(value));
            }
        });
        message.getUnknownFields().asMap().keySet().forEach(number -> node.put("unknown " + number, true));
        return node;
    }

    private static JsonNode toValue(Object value) {
        if (value instanceof Message message) {
            return toJson(message);
        }
        if (value instanceof ByteString bytes) {
            return Oracle.JSON.getNodeFactory().textNode(HexFormat.of().formatHex(bytes.toByteArray()));
        }
        if (value instanceof EnumValueDescriptor name) {
            return Oracle.JSON.getNodeFactory().textNode(name.getName());
        }
        return Oracle.JSON.valueToTree(value);
    }
}
