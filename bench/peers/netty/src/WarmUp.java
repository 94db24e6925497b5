import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;

/**
 * Asks the server for each route, in bursts and on new connections too, until the JVM has compiled what runs often: after
 * so many requests, however busy the machine is, or after TIME_MAX_MS.
 */
final class WarmUp {
    private static final int BURST = 64;
    /** Below what a plan waits for a server to be ready. */
    private static final long TIME_MAX_MS = 12_000;
    private static final String[] REQUESTS = {
        "GET /plaintext HTTP/1.1\r\nHost: warm-up\r\n\r\n",
        "GET /json HTTP/1.1\r\nHost: warm-up\r\n\r\n",
        "GET /users/12345 HTTP/1.1\r\nHost: warm-up\r\n\r\n",
        "POST /e HTTP/1.1\r\nHost: warm-up\r\nContent-Length: 8\r\n\r\n{\"n\":42}",
    };

    static void run(SocketAddress address, int requests) throws IOException {
        InetSocketAddress server = (InetSocketAddress) address;
        byte[] closing = bytes("GET /plaintext HTTP/1.1\r\nHost: warm-up\r\nConnection: close\r\n\r\n");
        long end = System.nanoTime() + TIME_MAX_MS * 1_000_000;
        for (int next = 0; next * BURST < requests && System.nanoTime() < end; next++) {
            byte[] burst = bytes(REQUESTS[next % REQUESTS.length].repeat(BURST));
            try (Socket socket = new Socket(server.getAddress(), server.getPort())) {
                OutputStream out = socket.getOutputStream();
                out.write(burst);
                out.write(closing);
                out.flush();
                InputStream in = socket.getInputStream();
                in.readAllBytes();
            }
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private WarmUp() {}
}
