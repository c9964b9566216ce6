// Predict with a model of export_onnx in JavaScript, without Python:
//   npm install onnxruntime-web
//   echo '[[0.5, -1.0], [2.0, 0.1]]' | node onnx_host.mjs model.onnx
// Run it in the folder of node_modules. It prints one line of JSON for each record.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const ort = createRequire(`${process.cwd()}/`)("onnxruntime-web");
ort.env.wasm.numThreads = 1;
const rows = JSON.parse(readFileSync(0, "utf8"));
const session = await ort.InferenceSession.create(new Uint8Array(readFileSync(process.argv[2])));
const features = new ort.Tensor("float32", rows.flat(), [rows.length, rows[0].length]);
const { label, probabilities } = await session.run({ features });
const nClasses = probabilities.dims[1];
for (let i = 0; i < rows.length; i++) {
  const of = Array.from(probabilities.data.slice(i * nClasses, (i + 1) * nClasses));
  const name = typeof label.data[i] === "bigint" ? Number(label.data[i]) : label.data[i];
  console.log(JSON.stringify({ label: name, probabilities: of }));
}
