WITH found AS (SELECT cell, coalesce(name, server) AS name, printf('%.2f (%.2f–%.2f)', 1 / ratio, 1 / high, 1 / low) AS times,
      1 / ratio AS size
    FROM comparisons LEFT JOIN names USING (server)
    WHERE record = '2026-11-22-framework' AND server IN ('axum', 'actix', 'ntex', 'nginx', 'go-nethttp'))
SELECT name AS 'against', max(times) FILTER (WHERE cell = 'plaintext') AS '`GET /plaintext`',
  max(times) FILTER (WHERE cell = 'post') AS '`POST /e`',
  max(times) FILTER (WHERE cell = 'close') AS 'a connection for each request'
FROM found
GROUP BY name
ORDER BY max(size) FILTER (WHERE cell = 'plaintext')
