import com.fasterxml.jackson.databind.ObjectMapper;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.uring.IoUringIoHandler;
import io.netty.channel.uring.IoUringServerSocketChannel;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.DefaultHttpHeadersFactory;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.LastHttpContent;
import io.netty.util.AsciiString;
import io.netty.util.ReferenceCountUtil;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Netty 4.2, one event loop a worker. Environment: PORT (8080), WORKERS (1), TRANSPORT (epoll, or io_uring), and
 * WARM_UP (200000): so many requests it asks itself before it listens, because the JVM compiles what runs often, and a
 * benchmark of a fresh process would measure its interpreter.
 */
public final class Server {
    private static final byte[] HELLO = "Hello, World!".getBytes(StandardCharsets.US_ASCII);
    private static final AsciiString TEXT = AsciiString.cached("text/plain");
    private static final AsciiString JSON = AsciiString.cached("application/json");
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private enum Route { PLAINTEXT, JSON, EVENT, USER, NONE }

    /** Netty has no router: exact paths are in a map, and /users/{id} is a prefix. */
    private static final Map<String, Route> ROUTES =
            Map.of("/plaintext", Route.PLAINTEXT, "/json", Route.JSON, "/e", Route.EVENT);
    private static final String USERS = "/users/";

    private record Message(String message) {}

    private static final class Handler extends ChannelInboundHandlerAdapter {
        private Route route = Route.NONE;
        private boolean keepAlive;
        private String user;

        @Override
        public void channelRead(ChannelHandlerContext ctx, Object part) throws Exception {
            try {
                if (part instanceof HttpRequest request) {
                    begin(request);
                }
                if (part instanceof LastHttpContent) {
                    respond(ctx);
                }
            } finally {
                ReferenceCountUtil.release(part);
            }
        }

        private void begin(HttpRequest request) {
            String path = request.uri();
            route = ROUTES.getOrDefault(path, Route.NONE);
            if (route == Route.NONE && path.startsWith(USERS) && path.indexOf('/', USERS.length()) < 0) {
                route = Route.USER;
                user = path.substring(USERS.length());
            }
            keepAlive = HttpUtil.isKeepAlive(request);
        }

        private void respond(ChannelHandlerContext ctx) throws Exception {
            HttpResponseStatus status = HttpResponseStatus.OK;
            ByteBuf body = Unpooled.EMPTY_BUFFER;
            AsciiString type = TEXT;
            switch (route) {
                case PLAINTEXT -> body = Unpooled.wrappedBuffer(HELLO);
                case JSON -> {
                    body = Unpooled.wrappedBuffer(MAPPER.writeValueAsBytes(new Message("Hello, World!")));
                    type = JSON;
                }
                case EVENT -> status = HttpResponseStatus.ACCEPTED;
                case USER -> body = Unpooled.wrappedBuffer(user.getBytes(StandardCharsets.UTF_8));
                default -> status = HttpResponseStatus.NOT_FOUND;
            }
            FullHttpResponse response = new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, status, body,
                    DefaultHttpHeadersFactory.headersFactory().withValidation(false),
                    DefaultHttpHeadersFactory.trailersFactory());
            response.headers().set(HttpHeaderNames.CONTENT_TYPE, type)
                    .setInt(HttpHeaderNames.CONTENT_LENGTH, body.readableBytes());
            if (keepAlive) {
                ctx.write(response, ctx.voidPromise());
            } else {
                response.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.CLOSE);
                ctx.write(response).addListener(ChannelFutureListener.CLOSE);
            }
        }

        /** All answers to what arrived together leave together. */
        @Override
        public void channelReadComplete(ChannelHandlerContext ctx) {
            ctx.flush();
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
            ctx.close();
        }
    }

    private static int number(String name, int otherwise) {
        String value = System.getenv(name);
        return value == null ? otherwise : Integer.parseInt(value);
    }

    public static void main(String[] arguments) throws Exception {
        boolean uring = "io_uring".equals(System.getenv("TRANSPORT"));
        IoHandlerFactory factory = uring ? IoUringIoHandler.newFactory() : EpollIoHandler.newFactory();
        EventLoopGroup loops = new MultiThreadIoEventLoopGroup(number("WORKERS", 1), factory);
        ServerBootstrap boot = new ServerBootstrap().group(loops)
                .channel(uring ? IoUringServerSocketChannel.class : EpollServerSocketChannel.class)
                .option(ChannelOption.SO_BACKLOG, 4096)
                .option(ChannelOption.SO_REUSEADDR, true)
                .childOption(ChannelOption.TCP_NODELAY, true)
                .childHandler(new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel channel) {
                        channel.pipeline().addLast(new HttpServerCodec()).addLast(new Handler());
                    }
                });
        Channel warm = boot.bind("127.0.0.1", 0).sync().channel();
        WarmUp.run(warm.localAddress(), number("WARM_UP", 200_000));
        warm.close().sync();
        boot.bind("127.0.0.1", number("PORT", 8080)).sync().channel().closeFuture().sync();
    }
}
