import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Debezium's engine, whose changes are produced as Kafka Connect would: settings file, bootstrap servers. */
public final class ChangesToKafka {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(file);
        }
        Properties client = new Properties();
        client.setProperty("bootstrap.servers", arguments[1]);
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<byte[], byte[]>(client, bytes, bytes);
                var engine = DebeziumEngine.create(Json.class).using(settings)
                        .using((success, message, error) -> System.err.println(message + " " + error))
                        .notifying((List<ChangeEvent<String, String>> events,
                                DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) -> {
                            for (var event : events) {
                                producer.send(new ProducerRecord<>(
                                        event.destination(), encode(event.key()), encode(event.value())));
                            }
                            producer.flush();
                            for (var event : events) {
                                committer.markProcessed(event);
                            }
                            committer.markBatchFinished();
                        })
                        .build()) {
            engine.run();
        }
    }

    private static byte[] encode(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }
}
