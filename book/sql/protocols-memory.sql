WITH m AS (SELECT server, cell, min(server_rss_kib) AS kib
    FROM rows
    WHERE record = '2026-11-26-resident' AND status = 'ok' GROUP BY server, cell),
pairs(few, many, connections, what) AS (VALUES
    ('http2-16', 'http2-10000', 9984, 'HTTP/2, between two requests'),
    ('websocket-0', 'websocket-10000', 10000, 'WebSocket, idle'),
    ('websocket-tls-0', 'websocket-tls-10000', 10000, 'WebSocket over TLS, idle')),
costs AS (SELECT what, a.server, printf('%.1f', (b.kib - a.kib) * 1.0 / connections) AS cost
    FROM pairs
    JOIN m a ON a.cell = few
    JOIN m b ON b.cell = many AND b.server = a.server)
SELECT what AS connection, max(cost) FILTER (WHERE server = 'highwater') AS 'Highwater, io_uring',
  max(cost) FILTER (WHERE server = 'highwater-epoll') AS 'Highwater, epoll',
  max(cost) FILTER (WHERE server = 'axum') AS 'axum'
FROM costs
GROUP BY what
ORDER BY what
