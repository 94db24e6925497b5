WITH costs AS (SELECT rowid AS place, cell, server, printf('%.2f', server_cpu_us_per_request) AS cost
    FROM summaries
    WHERE record = '2026-11-26-protocols')
SELECT cell, max(cost) FILTER (WHERE server = 'highwater') AS 'Highwater, io_uring',
  max(cost) FILTER (WHERE server = 'highwater-epoll') AS 'Highwater, epoll',
  max(cost) FILTER (WHERE server = 'axum') AS 'axum',
  coalesce(max(cost) FILTER (WHERE server = 'h2o'), '') AS 'libh2o',
  coalesce(max(cost) FILTER (WHERE server = 'uws'), '') AS 'uWebSockets',
  coalesce(max(cost) FILTER (WHERE server = 'floor-tls'), '') AS 'bare loop'
FROM costs
GROUP BY cell
ORDER BY min(place)
