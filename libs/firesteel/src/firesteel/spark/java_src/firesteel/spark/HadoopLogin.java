package firesteel.spark;

import com.sun.security.auth.module.UnixSystem;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * Logs a user in whose id has no entry in the password database, as OpenShift assigns them. Hadoop asks the operating
 * system for the user's name, whatever HADOOP_USER_NAME says, and Spark does not start without a login.
 */
public final class HadoopLogin {
  private HadoopLogin() {}

  /** To be called before Spark starts; does nothing where the operating system knows the user. */
  public static void ensure() {
    UnixSystem user = new UnixSystem();
    if (user.getUsername() == null) {
      String name = System.getenv("HADOOP_USER_NAME");
      boolean isNamed = name != null && !name.isEmpty();
      UserGroupInformation.setLoginUser(
          UserGroupInformation.createRemoteUser(isNamed ? name : Long.toString(user.getUid())));
    }
  }
}
