import java.io.File;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.flink.api.common.JobID;
import org.apache.flink.client.program.rest.RestClusterClient;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.JobManagerOptions;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.core.execution.CheckpointType;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.rest.messages.EmptyRequestBody;
import org.apache.flink.runtime.rest.messages.MessageHeaders;
import org.apache.flink.runtime.rest.messages.MessageParameter;
import org.apache.flink.runtime.rest.messages.MessageParameters;

/**
 * Flink's own client against a cluster of ours. Writes a line for each thing that it tries: "ok" or "failed", its name, what came
 * of it, with tabs between them.
 *
 * Arguments: host, port, id of a job that runs, id of another one, directory for savepoints, jar with Flink's messages, and
 * key=value for parts of paths.
 */
public class FlinkClient {
    private static RestClusterClient<String> client;

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(RestOptions.ADDRESS, arguments[0]);
        configuration.set(RestOptions.PORT, Integer.parseInt(arguments[1]));
        configuration.set(JobManagerOptions.ADDRESS, arguments[0]);
        configuration.set(RestOptions.RETRY_MAX_ATTEMPTS, 3);
        JobID first = JobID.fromHexString(arguments[2]);
        JobID second = JobID.fromHexString(arguments[3]);
        String directory = arguments[4];
        Map<String, String> parts = new HashMap<>();
        for (int i = 6; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            parts.put(pair[0], pair[1]);
        }
        client = new RestClusterClient<>(configuration, "test");
        attempt("listJobs", () -> done(client.listJobs()));
        attempt("getJobStatus", () -> done(client.getJobStatus(first)));
        attempt("getJobDetails", () -> done(client.getJobDetails(first)).getName());
        attempt("getAccumulators", () -> done(client.getAccumulators(first, FlinkClient.class.getClassLoader())).keySet());
        attempt("getClusterOverview", () -> done(client.getClusterOverview()).getNumTaskManagersConnected());
        attempt("listCompletedClusterDatasetIds", () -> done(client.listCompletedClusterDatasetIds()));
        attempt("reportHeartbeat", () -> done(client.reportHeartbeat(first, System.currentTimeMillis() + 600_000)));
        attempt("triggerCheckpoint", () -> done(client.triggerCheckpoint(first, CheckpointType.FULL)));
        read(new File(arguments[5]), parts);
        String[] savepoint = new String[1];
        attempt("triggerSavepoint", () -> savepoint[0] = done(client.triggerSavepoint(first, directory, SavepointFormatType.CANONICAL)));
        attempt("disposeSavepoint", () -> done(client.disposeSavepoint(savepoint[0])));
        attempt("stopWithSavepoint", () -> done(client.stopWithSavepoint(first, false, directory, SavepointFormatType.CANONICAL)));
        attempt("getJobStatus of the stopped", () -> done(client.getJobStatus(first)));
        attempt("requestJobResult", () -> done(client.requestJobResult(first)).getJobStatus().orElse(null));
        attempt("cancel", () -> done(client.cancel(second)));
        attempt("requestJobResult of the cancelled", () -> done(client.requestJobResult(second)).getJobStatus().orElse(null));
        attempt("triggerSavepoint of the cancelled", () -> done(client.triggerSavepoint(second, directory, SavepointFormatType.CANONICAL)));
        attempt("getJobStatus of nobody", () -> done(client.getJobStatus(new JobID())));
        client.close();
        System.exit(0);
    }

    /** Every answer that Flink's classes describe for a GET. */
    private static void read(File messages, Map<String, String> parts) throws Exception {
        Map<String, MessageHeaders<?, ?, ?>> found = new TreeMap<>();
        try (JarFile jar = new JarFile(messages)) {
            for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements(); ) {
                String name = entries.nextElement().getName();
                if (!name.startsWith("org/apache/flink/runtime/rest/") || !name.endsWith("Headers.class")) continue;
                Class<?> type = Class.forName(name.replace('/', '.').substring(0, name.length() - 6));
                if (Modifier.isAbstract(type.getModifiers()) || !MessageHeaders.class.isAssignableFrom(type)) continue;
                MessageHeaders<?, ?, ?> headers = instance(type);
                if (headers != null && headers.getHttpMethod().name().equals("GET"))
                    found.put("GET " + headers.getTargetRestEndpointURL(), headers);
            }
        }
        for (Map.Entry<String, MessageHeaders<?, ?, ?>> one : found.entrySet())
            attempt(one.getKey(), () -> ask(one.getValue(), parts));
    }

    private static MessageHeaders<?, ?, ?> instance(Class<?> type) throws Exception {
        try {
            return (MessageHeaders<?, ?, ?>) type.getMethod("getInstance").invoke(null);
        } catch (NoSuchMethodException none) {
            try {
                return (MessageHeaders<?, ?, ?>) type.getConstructor().newInstance();
            } catch (NoSuchMethodException neither) {
                return null;
            }
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object ask(MessageHeaders headers, Map<String, String> parts) throws Exception {
        MessageParameters parameters = headers.getUnresolvedMessageParameters();
        List<MessageParameter<?>> all = new ArrayList<>(parameters.getPathParameters());
        for (MessageParameter<?> one : parameters.getQueryParameters()) if (one.isMandatory()) all.add(one);
        for (MessageParameter<?> one : all) {
            String value = parts.get(one.getKey());
            if (value == null) return "not asked: no value for " + one.getKey();
            one.resolveFromString(value);
        }
        return done(client.sendRequest(headers, parameters, EmptyRequestBody.getInstance())).getClass().getSimpleName();
    }

    private static <T> T done(Future<T> work) throws Exception {
        try {
            return work.get(60, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            throw (error.getCause() instanceof Exception cause) ? cause : error;
        }
    }

    private static void attempt(String name, Callable<?> work) {
        String result;
        try {
            result = "ok\t" + name + "\t" + work.call();
        } catch (Throwable error) {
            StringBuilder text = new StringBuilder();
            for (Throwable one = error; one != null; one = one.getCause()) text.append(one).append(" | ");
            result = "failed\t" + name + "\t" + text;
        }
        System.out.println(result.replaceAll("[\\r\\n]+", " "));
    }
}
