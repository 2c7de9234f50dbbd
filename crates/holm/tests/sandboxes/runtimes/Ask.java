import java.net.InetSocketAddress;
import java.net.PasswordAuthentication;
import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;

/**
 * Asks for an address and tells what came back: Ask proxy|direct URL [BODY]. Java does not look at
 * the variables for proxies, so `proxy` reads them itself.
 */
public class Ask {
    public static void main(String[] arguments) throws Exception {
        var client = HttpClient.newBuilder();
        if (arguments[0].equals("proxy")) {
            var proxy = URI.create(System.getenv("HTTPS_PROXY"));
            var user = proxy.getUserInfo().split(":", 2);
            client.proxy(ProxySelector.of(new InetSocketAddress(proxy.getHost(), proxy.getPort())));
            client.authenticator(new java.net.Authenticator() {
                @Override
                protected PasswordAuthentication getPasswordAuthentication() {
                    return new PasswordAuthentication(user[0], user[1].toCharArray());
                }
            });
        }
        var request = HttpRequest.newBuilder(URI.create(arguments[1])).header("Content-Type", "application/json");
        if (arguments.length > 2) {
            request.POST(BodyPublishers.ofString(arguments[2]));
        }
        try {
            var answer = client.build().send(request.build(), BodyHandlers.ofString());
            var error = answer.headers().firstValue("Proxy-Error").orElse("");
            System.out.println(answer.version() + " " + answer.statusCode() + " " + error);
            System.out.println(answer.body());
        } catch (java.io.IOException error) {
            System.out.println("failed: " + error);
        }
    }
}
