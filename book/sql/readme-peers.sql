WITH names(server, name) AS (VALUES ('axum', 'axum'), ('actix', 'actix-web'), ('ntex', 'ntex'), ('nginx', 'nginx'),
    ('go-nethttp', 'Go net/http')),
  found AS (SELECT cell, name, printf('%.2f (%.2f–%.2f)', 1 / ratio, 1 / high, 1 / low) AS times, 1 / ratio AS size
    FROM comparisons JOIN names USING (server)
    WHERE record = '2026-11-22-framework')
SELECT name AS 'against', max(times) FILTER (WHERE cell = 'plaintext') AS '`GET /plaintext`',
  max(times) FILTER (WHERE cell = 'post') AS '`POST /e`',
  max(times) FILTER (WHERE cell = 'close') AS 'a connection for each request'
FROM found
GROUP BY name
ORDER BY max(size) FILTER (WHERE cell = 'plaintext')
