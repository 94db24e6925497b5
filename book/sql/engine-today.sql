WITH names(server, name) AS (VALUES ('highwater', 'Highwater, io_uring'), ('highwater-epoll', 'Highwater, epoll'),
    ('floor-uring', 'bare loop, io_uring'), ('floor-epoll', 'bare loop, epoll'), ('may', 'may_minihttp'),
    ('xitca-epoll', 'xitca-web'), ('actix', 'actix-web'), ('go-fasthttp', 'fasthttp'), ('go-fiber', 'Fiber'),
    ('go-nethttp', 'Go net/http'), ('netty', 'Netty'))
SELECT coalesce(name, server) AS server, server_cpu_us_per_request AS 'CPU µs'
FROM summaries LEFT JOIN names USING (server)
WHERE record = '2026-11-22-framework' AND cell = 'plaintext' AND server_cpu_us_per_request IS NOT NULL
ORDER BY 2
