WITH names(server, name) AS (VALUES ('highwater', 'Highwater, io_uring'), ('highwater-epoll', 'Highwater, epoll'),
    ('floor-uring', 'bare loop, io_uring'), ('floor-epoll', 'bare loop, epoll'), ('may', 'may_minihttp'),
    ('xitca-epoll', 'xitca-web'), ('actix', 'actix-web'), ('go-fasthttp', 'fasthttp'), ('go-fiber', 'Fiber'),
    ('go-nethttp', 'Go net/http'), ('netty', 'Netty'))
SELECT cell, coalesce(name, server) AS server, printf('%.2f', ratio) AS 'ratio', printf('%.2f to %.2f', low, high) AS '95 %', pairs
FROM comparisons LEFT JOIN names USING (server)
WHERE record = '2026-11-21-engine' AND baseline = 'axum' AND low IS NOT NULL
ORDER BY cell, ratio DESC
