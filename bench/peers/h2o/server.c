/* libh2o peer, on its own event loop: HTTP/1.1 and HTTP/2 with prior knowledge on PORT (8080) of loopback; with TLS_PORT, TLS_CERT
 * and TLS_KEY over TLS as well (OpenSSL), with HTTP/2 if the client knows it. One thread.
 *
 * It is made of the example that comes with the library (examples/libh2o/simple.c), without its log: fixed content, which
 * h2o_send_inline sends as its own example of a small answer does.
 */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <h2o.h>
#include <h2o/http1.h>
#include <h2o/http2.h>

static h2o_globalconf_t config;
static h2o_context_t context;
static h2o_accept_ctx_t plain, sealed;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int answer(h2o_req_t *req, const char *type, size_t type_len, const char *content, size_t len)
{
    if (!h2o_memis(req->method.base, req->method.len, H2O_STRLIT("GET")))
        return -1;
    req->res.status = 200;
    req->res.reason = "OK";
    req->res.content_length = len;
    h2o_add_header(&req->pool, &req->res.headers, H2O_TOKEN_CONTENT_TYPE, NULL, type, type_len);
    h2o_send_inline(req, content, len);
    return 0;
}

static int plaintext(h2o_handler_t *self, h2o_req_t *req)
{
    (void)self;
    return answer(req, H2O_STRLIT("text/plain; charset=utf-8"), H2O_STRLIT("Hello, World!"));
}

static int json(h2o_handler_t *self, h2o_req_t *req)
{
    (void)self;
    return answer(req, H2O_STRLIT("application/json"), H2O_STRLIT("{\"message\":\"Hello, World!\"}"));
}

static void route(h2o_hostconf_t *host, const char *path, int (*handle)(h2o_handler_t *, h2o_req_t *))
{
    h2o_pathconf_t *conf = h2o_config_register_path(host, path, 0);
    h2o_handler_t *handler = h2o_create_handler(conf, sizeof(*handler));
    handler->on_req = handle;
}

/* Takes what waits, at most so many at once: the loop calls again for the others. */
static void on_accept(h2o_socket_t *listener, const char *error)
{
    if (error != NULL)
        return;
    for (int left = 64; left > 0; left--) {
        h2o_socket_t *sock = h2o_evloop_socket_accept(listener);
        if (sock == NULL)
            return;
        h2o_accept(listener->data, sock);
    }
}

static void listen_on(const char *port, h2o_accept_ctx_t *accept)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd == -1 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 4096) != 0)
        fail("h2o: listen");
    h2o_socket_t *listener = h2o_evloop_socket_create(context.loop, fd, H2O_SOCKET_FLAG_DONT_READ);
    listener->data = accept;
    accept->ctx = &context;
    accept->hosts = config.hosts;
    h2o_socket_read_start(listener, on_accept);
}

/* TLS 1.2 and 1.3, with tickets, from the files that the environment names. */
static SSL_CTX *tls(void)
{
    const char *cert = getenv("TLS_CERT"), *key = getenv("TLS_KEY");
    SSL_CTX *ssl = SSL_CTX_new(TLS_server_method());
    if (cert == NULL || key == NULL || ssl == NULL || SSL_CTX_use_certificate_chain_file(ssl, cert) != 1 ||
        SSL_CTX_use_PrivateKey_file(ssl, key, SSL_FILETYPE_PEM) != 1) {
        fprintf(stderr, "h2o: TLS_CERT or TLS_KEY is missing, or no certificate and its key\n");
        exit(1);
    }
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    h2o_ssl_register_alpn_protocols(ssl, h2o_http2_alpn_protocols);
    return ssl;
}

int main(void)
{
    const char *port = getenv("PORT"), *tls_port = getenv("TLS_PORT");
    signal(SIGPIPE, SIG_IGN);
    h2o_config_init(&config);
    h2o_hostconf_t *host = h2o_config_register_host(&config, h2o_iovec_init(H2O_STRLIT("default")), 65535);
    route(host, "/plaintext", plaintext);
    route(host, "/json", json);
    h2o_context_init(&context, h2o_evloop_create(), &config);
    listen_on(port ? port : "8080", &plain);
    if (tls_port != NULL) {
        sealed.ssl_ctx = tls();
        listen_on(tls_port, &sealed);
    }
    /* A profiler interrupts its wait. */
    while (h2o_evloop_run(context.loop, INT32_MAX) == 0 || errno == EINTR)
        ;
    fail("h2o: loop");
}
