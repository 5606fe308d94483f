import java.io.File;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.TransportConfiguration;
import org.apache.activemq.artemis.core.config.CoreAddressConfiguration;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.remoting.impl.netty.NettyAcceptorFactory;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.core.settings.impl.AddressSettings;

/** Artemis with one durable queue: Artemis DATA PORT QUEUE IDS. Prints READY, and stops when its standard input ends. */
public class Artemis {
    public static void main(String[] words) throws Exception {
        String data = words[0], queue = words[2];
        Map<String, Object> acceptor = new HashMap<>();
        acceptor.put("host", "127.0.0.1");
        acceptor.put("port", words[1]);
        acceptor.put("protocols", "AMQP");
        ConfigurationImpl configuration = new ConfigurationImpl();
        configuration
            .setPersistenceEnabled(true)
            .setSecurityEnabled(false)
            // The journal without native code. It syncs before it answers, which is the default.
            .setJournalType(JournalType.NIO)
            .setJournalSyncNonTransactional(true)
            .setJournalSyncTransactional(true)
            .setJournalDatasync(true)
            .setIDCacheSize(Integer.parseInt(words[3]))
            .setPersistIDCache(true)
            .setJournalDirectory(new File(data, "journal").getPath())
            .setBindingsDirectory(new File(data, "bindings").getPath())
            .setPagingDirectory(new File(data, "paging").getPath())
            .setLargeMessagesDirectory(new File(data, "large").getPath())
            .addAcceptorConfiguration(
                new TransportConfiguration(NettyAcceptorFactory.class.getName(), acceptor, "amqp"))
            .addAddressSetting("#", new AddressSettings().setMaxSizeBytes(-1))
            .addAddressConfiguration(
                new CoreAddressConfiguration()
                    .setName(queue)
                    .addRoutingType(RoutingType.ANYCAST)
                    .setQueueConfigs(
                        List.of(QueueConfiguration.of(queue).setRoutingType(RoutingType.ANYCAST).setDurable(true))));
        EmbeddedActiveMQ server = new EmbeddedActiveMQ().setConfiguration(configuration);
        server.start();
        System.out.println("READY");
        System.in.transferTo(java.io.OutputStream.nullOutputStream());
        server.stop();
        System.exit(0);
    }
}
