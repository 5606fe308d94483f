import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends to Kafka at the address args[0]. Each line of standard input is a command, with tabs between its words:
 * "topic NAME PARTITIONS" creates a topic, "send TOPIC KEY MILLISECONDS VALUE" sends, and "flush" waits until everything
 * is stored. Prints "done" after "topic" and "flush".
 */
public class Producer {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0]);
        List<Future<?>> pending = new ArrayList<>();
        try (var admin = Admin.create(settings);
                var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
                var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line; (line = input.readLine()) != null; ) {
                String[] words = line.split("\t", -1);
                if (words[0].equals("send")) {
                    var record = new ProducerRecord<>(words[1], null, Long.parseLong(words[3]), words[2], words[4]);
                    pending.add(producer.send(record));
                    continue;
                }
                if (words[0].equals("topic")) {
                    var topic = new NewTopic(words[1], Integer.parseInt(words[2]), (short) 1);
                    admin.createTopics(List.of(topic)).all().get();
                }
                producer.flush();
                for (var each : pending) {
                    each.get();
                }
                pending.clear();
                System.out.println("done");
            }
        }
    }
}
