WITH kept AS (SELECT rowid AS place, cell, server, printf('%.0f %%', 100 * of_peak) AS part
    FROM goodput
    WHERE record = '2026-11-29-stress-protocols' AND cell LIKE 'http%')
SELECT CASE WHEN cell LIKE 'http2-tls%' THEN 'HTTP/2 over TLS' WHEN cell LIKE 'http2%' THEN 'HTTP/2'
    ELSE 'HTTP/1.1 over TLS' END AS 'protocol',
  replace(replace(replace(replace(cell, 'http2-tls-', ''), 'http2-', ''), 'http1-tls-', ''), 'x', '') AS 'times the capacity',
  max(part) FILTER (WHERE server = 'uring') AS 'io_uring', max(part) FILTER (WHERE server = 'epoll') AS 'epoll'
FROM kept
GROUP BY cell
ORDER BY min(place)
