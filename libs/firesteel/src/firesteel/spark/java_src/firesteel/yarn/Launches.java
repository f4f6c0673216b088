package firesteel.yarn;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.DataOutputBuffer;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.yarn.api.records.ApplicationAccessType;
import org.apache.hadoop.yarn.api.records.ContainerLaunchContext;
import org.apache.hadoop.yarn.api.records.LocalResource;
import org.apache.hadoop.yarn.api.records.LocalResourceType;
import org.apache.hadoop.yarn.api.records.LocalResourceVisibility;
import org.apache.hadoop.yarn.api.records.URL;
import org.apache.hadoop.yarn.security.AMRMTokenIdentifier;

/** What a container is started with, collected piece by piece. */
public final class Launches {
  private final Map<String, LocalResource> resources = new HashMap<>();
  private final Map<String, String> environment = new HashMap<>();
  private final List<String> commands = new ArrayList<>();
  private final Map<ApplicationAccessType, String> access = new HashMap<>();
  private final Credentials credentials = new Credentials();

  /** A file that is to lie in the container's directory under a name. */
  public void resource(String name, String uri, long size, long timestamp, String type, String visibility) {
    resources.put(
        name,
        LocalResource.newInstance(
            URL.fromPath(new Path(uri)),
            LocalResourceType.valueOf(type),
            LocalResourceVisibility.valueOf(visibility),
            size,
            timestamp));
  }

  public void variable(String name, String value) {
    environment.put(name, value);
  }

  public void command(String line) {
    commands.add(line);
  }

  public void mayView(String users) {
    access.put(ApplicationAccessType.VIEW_APP, users);
  }

  public void mayModify(String users) {
    access.put(ApplicationAccessType.MODIFY_APP, users);
  }

  /** A secret of the application; it travels beside the tokens. */
  public void secret(String name, byte[] value) {
    credentials.addSecretKey(new Text(name), value);
  }

  /** Tokens of somebody else. */
  public void credentials(Credentials more) {
    credentials.addAll(more);
  }

  /** All that this process has been given, but for the right to be the ApplicationMaster. */
  public void ownCredentials() throws IOException {
    Credentials own = UserGroupInformation.getCurrentUser().getCredentials();
    for (Text alias : new ArrayList<>(own.getTokenMap().keySet())) {
      Token<?> token = own.getToken(alias);
      if (!AMRMTokenIdentifier.KIND_NAME.equals(token.getKind())) {
        credentials.addToken(alias, token);
      }
    }
    for (Text name : own.getAllSecretKeys()) {
      credentials.addSecretKey(name, own.getSecretKey(name));
    }
  }

  public ContainerLaunchContext make() throws IOException {
    DataOutputBuffer buffer = new DataOutputBuffer();
    credentials.writeTokenStorageToStream(buffer);
    ByteBuffer tokens = ByteBuffer.wrap(buffer.getData(), 0, buffer.getLength());
    return ContainerLaunchContext.newInstance(resources, environment, commands, null, tokens, access);
  }
}
