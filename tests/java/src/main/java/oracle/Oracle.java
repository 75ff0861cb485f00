package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ExecutionException;

/**
 * What Pulsar's own offloaders make of a ledger. Reads requests from standard input and answers on standard output, one
 * JSON object a line each, until standard input ends. A request names its "command"; an answer has what that command
 * found, or "error" with the exception's "type", "message" and "trace". Big data goes through files (see EntryFile).
 */
public final class Oracle {
    /** Answers one kind of request. */
    interface Command {
        ObjectNode answer(JsonNode request) throws Exception;
    }

    static final ObjectMapper JSON = new ObjectMapper();

    private static final Map<String, Command> COMMANDS = Map.ofEntries(
            Map.entry("offload", BlobCommands::offload),
            Map.entry("stream", BlobCommands::stream),
            Map.entry("read", BlobCommands::read),
            Map.entry("offload_files", FileCommands::offload),
            Map.entry("read_files", FileCommands::read),
            Map.entry("parse", Records::parse),
            Map.entry("produce", Messages::produce),
            Map.entry("consume", Messages::consume),
            Map.entry("read_record", MetaStores::read),
            Map.entry("update_record", MetaStores::update),
            Map.entry("managed_ledger_names", MetaStores::names),
            Map.entry("send_transactions", Transactions::send),
            Map.entry("read_transactions", Transactions::read),
            Map.entry("send_typed", Typed::send),
            Map.entry("time_writer", Timing::writer),
            Map.entry("time_reader", Timing::reader),
            Map.entry("time_client_reader", ClientTiming::reader),
            Map.entry("create_ledger", BookKeeperLedgers::create),
            Map.entry("append_to_ledger", BookKeeperLedgers::append),
            Map.entry("close_ledger", BookKeeperLedgers::close),
            Map.entry("delete_ledger", BookKeeperLedgers::delete),
            Map.entry("time_ledger", BookKeeperLedgers::time));

    private Oracle() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever a library prints is no answer
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.write((JSON.writeValueAsString(answer(line)) + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // a read that never ends must not keep this process
    }

    private static ObjectNode answer(String line) {
        try {
            JsonNode request = JSON.readTree(line);
            String name = request.required("command").asText();
            Command command = COMMANDS.get(name);
            if (command == null) {
                throw new IllegalArgumentException("no such command: " + name);
            }
            return command.answer(request);
        } catch (Throwable error) {
            return JSON.createObjectNode().set("error", describe(error));
        }
    }

    /** An exception as JSON; the one that a future or a wrapper without words of its own hides. */
    static ObjectNode describe(Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null
                && (cause instanceof ExecutionException || cause.getClass() == RuntimeException.class)) {
            cause = cause.getCause();
        }
        StringWriter trace = new StringWriter();
        error.printStackTrace(new PrintWriter(trace));
        return JSON.createObjectNode()
                .put("type", cause.getClass().getName())
                .put("message", String.valueOf(cause.getMessage()))
                .put("trace", trace.toString());
    }
}
