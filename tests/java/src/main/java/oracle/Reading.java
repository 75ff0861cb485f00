package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;

/**
 * Reads the ranges that a request asks for, each with a deadline, since some of Pulsar's reads never end: then the
 * thread is left to itself, nothing more is read, and the answer says "ended": false. Whoever asked should end this
 * process.
 */
final class Reading {
    private Reading() {}

    /**
     * Opens a handle and reads "ranges" (pairs of first and last entry id) into the file "into". The answer has for
     * each range the number of "entries", or the "error".
     */
    static ObjectNode read(JsonNode request, Callable<ReadHandle> open) throws Exception {
        long deadlineMs = request.path("deadline_ms").asLong(20_000);
        ObjectNode answer = Oracle.JSON.createObjectNode().put("ended", true);
        List<EntryFile.Stored> entries = new ArrayList<>();
        try {
            ReadHandle handle = within(deadlineMs, open);
            answer.put("last_add_confirmed", handle.getLastAddConfirmed()).put("length", handle.getLength());
            ArrayNode outcomes = answer.putArray("ranges");
            for (JsonNode range : request.required("ranges")) {
                ObjectNode outcome = outcomes.addObject();
                try {
                    List<EntryFile.Stored> found =
                            within(deadlineMs, () -> range(handle, range.get(0).asLong(), range.get(1).asLong()));
                    entries.addAll(found);
                    outcome.put("entries", found.size());
                } catch (ExecutionException error) {
                    outcome.set("error", Oracle.describe(error));
                }
            }
            within(deadlineMs, () -> handle.closeAsync().get());
        } catch (TimeoutException error) {
            answer.put("ended", false);
        }
        EntryFile.write(Path.of(request.required("into").asText()), entries);
        return answer;
    }

    private static List<EntryFile.Stored> range(ReadHandle handle, long first, long last) throws Exception {
        List<EntryFile.Stored> found = new ArrayList<>();
        try (LedgerEntries entries = handle.readAsync(first, last).get()) {
            for (LedgerEntry entry : entries) {
                found.add(new EntryFile.Stored(entry.getLedgerId(), entry.getEntryId(), entry.getEntryBytes()));
            }
        }
        return found;
    }

    private static <T> T within(long deadlineMs, Callable<T> call) throws Exception {
        FutureTask<T> task = new FutureTask<>(call);
        Thread thread = new Thread(task, "oracle-read");
        thread.setDaemon(true);
        thread.start();
        return task.get(deadlineMs, TimeUnit.MILLISECONDS);
    }
}
