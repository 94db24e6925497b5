WITH
  -- Rows in which the two CPUs were near each other, before and after: one of the machine's two speeds.
  near AS (SELECT e.value ->> 'server' AS server, e.value ->> 'cell' AS cell,
      e.value ->> 'server_cpu_us_per_request' AS us
    FROM documents, json_each(document, '$.cells') AS e
    WHERE record = '2026-11-22-framework' AND e.value ->> 'status' = 'ok' AND e.value ->> '$.c2c_ns[0]' < 100
      AND e.value ->> '$.c2c_ns[1]' < 100),
  placed AS (SELECT server, cell, us, row_number() OVER one AS place, count(*) OVER (PARTITION BY server, cell) AS many
    FROM near WINDOW one AS (PARTITION BY server, cell ORDER BY us)),
  medians AS (SELECT server, cell, avg(us) AS us
    FROM placed
    WHERE place IN ((many + 1) / 2, (many + 2) / 2) AND many >= 2
    GROUP BY server, cell),
  shown AS (SELECT server, cell, us, printf(iif(us < 10, '%.2f', '%.1f'), us) AS text FROM medians)
SELECT coalesce(name, server) AS ' ', coalesce(max(text) FILTER (WHERE cell = 'plaintext'), '–') AS '`/plaintext`',
  coalesce(max(text) FILTER (WHERE cell = 'json'), '–') AS '`/json`',
  coalesce(max(text) FILTER (WHERE cell = 'users'), '–') AS '`/users/{id}`',
  coalesce(max(text) FILTER (WHERE cell = 'post'), '–') AS '`POST /e`',
  coalesce(max(text) FILTER (WHERE cell = 'pipeline'), '–') AS '16 pipelined',
  coalesce(max(text) FILTER (WHERE cell = 'close'), '–') AS 'connection each'
FROM shown LEFT JOIN names USING (server)
GROUP BY server
ORDER BY max(us) FILTER (WHERE cell = 'plaintext')
