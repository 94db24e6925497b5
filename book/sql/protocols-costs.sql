WITH costs AS (SELECT rowid AS place, cell, server, server_cpu_us_per_request AS cost
    FROM summaries
    WHERE record = '2026-11-26-protocols')
SELECT cell, printf('%.2f', max(cost) FILTER (WHERE server = 'highwater')) AS 'Highwater, io_uring',
  printf('%.2f', max(cost) FILTER (WHERE server = 'highwater-epoll')) AS 'Highwater, epoll',
  printf('%.2f', max(cost) FILTER (WHERE server = 'axum')) AS 'axum'
FROM costs
GROUP BY cell
ORDER BY min(place)
