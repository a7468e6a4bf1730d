// A kind of sandbox that is defined once and booted twice, with files from memory.
import { Belljar, defineSandbox, fs, network, rootfs } from "belljar";

await using client = new Belljar();
const python = defineSandbox({
  rootfs: rootfs.builtIn("host"),
  resources: { memory: "256MiB", cpus: 1 },
  network: network.none(),
  client,
});

for (const name of ["Ada", "Grace"]) {
  await using lane = await python.boot({
    mounts: { "/workspace/app": fs.memory({ files: { "hello.py": `print("hello, ${name}")` } }) },
    cwd: "/workspace/app",
  });
  const { stdout } = await lane.exec("python3", ["hello.py"]);
  console.log(stdout.trim());
}
