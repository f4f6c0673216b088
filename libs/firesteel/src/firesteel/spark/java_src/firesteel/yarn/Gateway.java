package firesteel.yarn;

import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.util.HexFormat;
import py4j.GatewayServer;

/** A JVM with the clients of Hadoop, for Python: it ends with the process that holds its standard input. */
public final class Gateway {
  private Gateway() {}

  /** Argument: the file in which it says where it listens, and the token without which it does nothing. */
  public static void main(String[] arguments) throws IOException {
    byte[] random = new byte[32];
    new SecureRandom().nextBytes(random);
    String token = HexFormat.of().formatHex(random);
    GatewayServer server =
        new GatewayServer.GatewayServerBuilder(new Object())
            .javaPort(0)
            .javaAddress(InetAddress.getLoopbackAddress())
            .authToken(token)
            .build();
    server.start();
    Path file = Path.of(arguments[0]);
    Path draft = file.resolveSibling(file.getFileName() + ".draft");
    Files.createFile(draft, PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
    try (DataOutputStream out = new DataOutputStream(Files.newOutputStream(draft, StandardOpenOption.WRITE))) {
      byte[] text = token.getBytes(StandardCharsets.UTF_8);
      out.writeInt(server.getListeningPort());
      out.writeInt(text.length);
      out.write(text);
    }
    Files.move(draft, file, StandardCopyOption.ATOMIC_MOVE);
    while (System.in.read() >= 0) {
      // nothing is said here
    }
    Runtime.getRuntime().halt(0);
  }
}
