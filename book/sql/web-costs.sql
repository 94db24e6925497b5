WITH costs AS (SELECT rowid AS place, record, cell, server, server_cpu_us_per_request AS cost
    FROM summaries
    WHERE record = '2026-11-26-web' AND cell <> 'upload-64k' OR record = '2026-11-26-upload')
SELECT cell, printf('%.1f', max(cost) FILTER (WHERE server = 'highwater')) AS 'Highwater, io_uring',
  printf('%.1f', max(cost) FILTER (WHERE server = 'highwater-epoll')) AS 'Highwater, epoll',
  printf('%.1f', max(cost) FILTER (WHERE server = 'axum')) AS 'axum',
  printf('%.1f', max(cost) FILTER (WHERE server = 'actix')) AS 'actix-web',
  iif(count(*) FILTER (WHERE server = 'nginx'), printf('%.1f', max(cost) FILTER (WHERE server = 'nginx')), '') AS 'nginx'
FROM costs
GROUP BY record, cell
ORDER BY record DESC, min(place)
