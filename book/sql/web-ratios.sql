WITH found AS (SELECT record, cell, server, place, printf('%.2f (%s)', ratio, interval_2) AS times
    FROM intervals
    WHERE record = '2026-11-26-web' AND cell <> 'upload-64k' OR record = '2026-11-26-upload')
SELECT cell, max(times) FILTER (WHERE server = 'highwater') AS 'Highwater, io_uring',
  max(times) FILTER (WHERE server = 'highwater-epoll') AS 'Highwater, epoll',
  max(times) FILTER (WHERE server = 'actix') AS 'actix-web',
  coalesce(max(times) FILTER (WHERE server = 'nginx'), '') AS 'nginx'
FROM found
GROUP BY record, cell
ORDER BY record DESC, min(place)
