package oncebus;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.stream.Stream;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/** Runs the scenarios that its arguments name as Class.method, many at a time. Each result is a line of JSON. */
public final class Main {
    private static final String AT_ONCE = "12";

    private Main() {}

    public static void main(String[] names) {
        PrintStream results = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        // Standard output is for results alone.
        System.setOut(System.err);
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
            .selectors(Stream.of(names)
                .map(name -> DiscoverySelectors.selectMethod("oncebus." + name.replace('.', '#')))
                .toList())
            .configurationParameter("junit.jupiter.execution.parallel.enabled", "true")
            .configurationParameter("junit.jupiter.execution.parallel.mode.default", "concurrent")
            .configurationParameter("junit.jupiter.execution.parallel.config.strategy", "fixed")
            .configurationParameter("junit.jupiter.execution.parallel.config.fixed.parallelism", AT_ONCE)
            .configurationParameter("junit.jupiter.execution.timeout.default", "120 s")
            .build();
        LauncherFactory.create().execute(request, new Results(results));
        // Clients leave threads behind.
        System.exit(0);
    }

    private record Results(PrintStream out) implements TestExecutionListener {
        @Override
        public void executionFinished(TestIdentifier test, TestExecutionResult result) {
            String failure = result.getThrowable().map(Results::text).orElse(null);
            if (test.getSource().orElse(null) instanceof MethodSource method) {
                write(method.getJavaClass().getSimpleName() + "." + method.getMethodName(), failure);
            } else if (failure != null) {
                write(test.getDisplayName(), failure);
            }
        }

        private void write(String name, String failure) {
            try {
                List<String> result = failure == null ? List.of(name) : List.of(name, failure);
                synchronized (out) {
                    out.println(new ObjectMapper().writeValueAsString(result));
                }
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }

        private static String text(Throwable failure) {
            StringWriter text = new StringWriter();
            failure.printStackTrace(new PrintWriter(text));
            return text.toString();
        }
    }
}
