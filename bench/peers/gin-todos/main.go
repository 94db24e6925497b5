// gin-todos answers GET /todos?limit=N as a Todo API of Gin and Redis usually does: the list's bytes stand in Redis under
// `todos:limit:N`, every request fetches them from there, and a miss is loaded once, by whoever comes first.
//
// It is what the Todo service is measured against, for reads only: no Kafka and no Postgres, the todos behind a miss are
// made at start. It is to be as fast as such a program is: Gin without its logger, one pool of connections to Redis, the
// bytes handed on as they are.
//
// PORT is where it listens, WORKERS how many threads run Go code, REDIS_URL where Redis is.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

const (
	todosCount = 10_000
	keep       = 300 * time.Second
	poolSize   = 256
)

type todo struct {
	ID          string    `json:"id"`
	Title       string    `json:"title"`
	Description string    `json:"description"`
	Completed   bool      `json:"completed"`
	UserID      string    `json:"user_id"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
}

// Newest first.
func stored() []todo {
	todos := make([]todo, todosCount)
	now := time.Now().UTC()
	for index := range todos {
		number := todosCount - index
		made := now.Add(-time.Duration(index) * time.Millisecond)
		todos[index] = todo{
			ID:          fmt.Sprintf("01a1b2c3-0000-7000-8000-%012d", number),
			Title:       fmt.Sprintf("Todo %d", number),
			Description: fmt.Sprintf("Description for todo %d", number),
			UserID:      "seed-user",
			CreatedAt:   made,
			UpdatedAt:   made,
		}
	}
	return todos
}

type controller struct {
	redis  *redis.Client
	flight singleflight.Group
	todos  []todo
}

func (c *controller) list(ctx *gin.Context) {
	limit, err := strconv.Atoi(ctx.Query("limit"))
	key := "todos:all"
	if err == nil && limit > 0 {
		key = "todos:limit:" + strconv.Itoa(limit)
	} else {
		limit = len(c.todos)
	}
	cached, err := c.redis.Get(ctx.Request.Context(), key).Bytes()
	if errors.Is(err, redis.Nil) {
		cached, err = c.fill(key, min(limit, len(c.todos)))
	}
	if err != nil {
		ctx.JSON(http.StatusInternalServerError, gin.H{"error": "Failed to get todos"})
		return
	}
	ctx.Data(http.StatusOK, "application/json", cached)
}

func (c *controller) fill(key string, limit int) ([]byte, error) {
	list, err, _ := c.flight.Do(key, func() (any, error) {
		bytes, err := json.Marshal(c.todos[:limit])
		if err == nil {
			err = c.redis.Set(context.Background(), key, bytes, keep).Err()
		}
		return bytes, err
	})
	if err != nil {
		return nil, err
	}
	return list.([]byte), nil
}

func main() {
	if workers, err := strconv.Atoi(os.Getenv("WORKERS")); err == nil && workers > 0 {
		runtime.GOMAXPROCS(workers)
	}
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatalf("REDIS_URL: %v; write redis://host:port/0", err)
	}
	options.PoolSize = poolSize
	shared := &controller{redis: redis.NewClient(options), todos: stored()}

	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery())
	router.GET("/todos", shared.list)
	router.GET("/health", func(ctx *gin.Context) { ctx.String(http.StatusOK, "OK") })
	log.Fatal(router.Run("127.0.0.1:" + os.Getenv("PORT")))
}
