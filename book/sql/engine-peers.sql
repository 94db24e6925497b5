WITH found AS (SELECT cell, server, verdict, 1 / ratio AS size,
      printf('%.2f (%.2f–%.2f)', 1 / ratio, 1 / high, 1 / low) AS times
    FROM comparisons
    WHERE record = '2026-11-22-framework' AND cell != 'peak' AND server NOT LIKE 'floor%' AND pairs >= 2)
SELECT coalesce(name, server) AS 'against', coalesce(max(times) FILTER (WHERE cell = 'plaintext'), '–') AS '`/plaintext`',
  coalesce(max(times) FILTER (WHERE cell = 'post'), '–') AS '`POST /e`',
  coalesce(max(times) FILTER (WHERE cell = 'pipeline'), '–') AS '16 pipelined',
  coalesce(max(times) FILTER (WHERE cell = 'close'), '–') AS 'connection each',
  count(*) FILTER (WHERE verdict = 'slower') || ' of ' || count(*) AS 'slower'
FROM found LEFT JOIN names USING (server)
GROUP BY server
ORDER BY max(size) FILTER (WHERE cell = 'plaintext')
