package firesteel.yarn;

import java.io.IOException;
import java.security.PrivilegedExceptionAction;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.security.token.TokenIdentifier;
import org.apache.hadoop.security.token.delegation.AbstractDelegationTokenIdentifier;
import org.apache.hadoop.yarn.conf.YarnConfiguration;

/**
 * What an application does with its user's keytab, since the delegation tokens that it was submitted with end with their
 * longest life. The user of this process stays who it is: that one is the ApplicationMaster.
 */
public final class Keytab {
  private static final long LONGEST_MS = 600_000;
  private static final double PART = 0.25;

  private final String principal;
  private final String file;
  private final String directory;
  private final YarnConfiguration configuration = new YarnConfiguration();
  private Credentials tokens;
  private long goodUntil;

  /** Of a principal; the directory is one whose file system is needed beside the default one. */
  public Keytab(String principal, String file, String directory) {
    this.principal = principal;
    this.file = file;
    this.directory = directory;
  }

  /** Delegation tokens for the file systems, not older than a quarter of their life or ten minutes. */
  public synchronized Credentials tokens() throws IOException, InterruptedException {
    long now = System.currentTimeMillis();
    if (tokens == null || now >= goodUntil) {
      Credentials found = as(this::ask);
      goodUntil = now + lasts(found);
      tokens = found;
    }
    return tokens;
  }

  /** Delete the directory. */
  public void deleteDirectory() throws IOException, InterruptedException {
    as(() -> new Path(directory).getFileSystem(configuration).delete(new Path(directory), true));
  }

  private Credentials ask() throws IOException {
    Credentials made = new Credentials();
    String renewer = configuration.get(YarnConfiguration.RM_PRINCIPAL);
    FileSystem.get(configuration).addDelegationTokens(renewer, made);
    new Path(directory).getFileSystem(configuration).addDelegationTokens(renewer, made);
    return made;
  }

  private <T> T as(PrivilegedExceptionAction<T> work) throws IOException, InterruptedException {
    UserGroupInformation user = UserGroupInformation.loginUserFromKeytabAndReturnUGI(principal, file);
    try {
      return user.doAs(work);
    } finally {
      FileSystem.closeAllForUGI(user);
    }
  }

  private static long lasts(Credentials found) throws IOException {
    long shortest = LONGEST_MS;
    for (Token<? extends TokenIdentifier> token : found.getAllTokens()) {
      if (token.decodeIdentifier() instanceof AbstractDelegationTokenIdentifier) {
        AbstractDelegationTokenIdentifier told = (AbstractDelegationTokenIdentifier) token.decodeIdentifier();
        shortest = Math.min(shortest, (long) (PART * (told.getMaxDate() - told.getIssueDate())));
      }
    }
    return shortest;
  }
}
