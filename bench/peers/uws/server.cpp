// uWebSockets peer: a page and an echo of WebSocket messages on PORT (8080) of loopback; with TLS_PORT, TLS_CERT and TLS_KEY over
// TLS as well (OpenSSL). One thread.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "App.h"

struct Nothing {};

template <bool SSL>
static void serve(uWS::TemplatedApp<SSL> &app, const char *port) {
    // Messages are sent back as they came; no compression, no time limit that Highwater's route would not have.
    typename uWS::TemplatedApp<SSL>::template WebSocketBehavior<Nothing> echo;
    echo.compression = uWS::DISABLED;
    echo.maxPayloadLength = 16 * 1024 * 1024;
    echo.message = [](auto *socket, std::string_view message, uWS::OpCode kind) { socket->send(message, kind); };
    app.template ws<Nothing>("/ws", std::move(echo));
    app.get("/plaintext", [](auto *response, auto *) {
        response->writeHeader("Content-Type", "text/plain; charset=utf-8")->end("Hello, World!");
    });
    app.listen("127.0.0.1", std::atoi(port), [port](auto *socket) {
        if (!socket) {
            std::fprintf(stderr, "uws: cannot listen on port %s\n", port);
            std::exit(1);
        }
    });
}

int main() {
    const char *port = std::getenv("PORT"), *tls_port = std::getenv("TLS_PORT");
    uWS::App plain;
    serve(plain, port ? port : "8080");
    if (!tls_port) {
        plain.run();
        return 1;
    }
    uWS::SocketContextOptions options{};
    options.cert_file_name = std::getenv("TLS_CERT");
    options.key_file_name = std::getenv("TLS_KEY");
    uWS::SSLApp sealed(options);
    if (!options.cert_file_name || !options.key_file_name || sealed.constructorFailed()) {
        std::fprintf(stderr, "uws: TLS_CERT or TLS_KEY is missing, or no certificate and its key\n");
        return 1;
    }
    serve(sealed, tls_port);
    // Both are on the thread's one loop.
    plain.run();
    return 1;
}
