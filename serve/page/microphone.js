/* Recordings from the microphone: one channel of 16 kHz, as a WAV file, which
   every server can read without a codec. */

const SPEECH_RATE = 16000;
const WAV_HEADER_BYTES = 44;

/* The reason why there is no microphone, as a sentence. */
const refusalOf = (error) => ({
  NotAllowedError: "The browser does not let this page use the microphone. " +
    "Allow it in the browser's settings for this page, or choose a file.",
  NotFoundError: "No microphone was found. Connect one, or choose a file.",
  NotReadableError: "The microphone cannot be read. Another program may use it.",
}[error.name] ?? `The microphone cannot be used: ${error.message}`);

/* Samples in [-1, 1] as the bytes of a WAV file of 16 bits. */
const wavOf = (samples, rate) => {
  const file = new DataView(
    new ArrayBuffer(WAV_HEADER_BYTES + 2 * samples.length));
  const putText = (at, text) =>
    [...text].forEach((c, i) => file.setUint8(at + i, c.charCodeAt(0)));
  putText(0, "RIFF");
  file.setUint32(4, file.byteLength - 8, true);
  putText(8, "WAVEfmt ");
  file.setUint32(16, 16, true);        /* bytes of this part */
  file.setUint16(20, 1, true);         /* PCM */
  file.setUint16(22, 1, true);         /* channels */
  file.setUint32(24, rate, true);
  file.setUint32(28, 2 * rate, true);  /* bytes a second */
  file.setUint16(32, 2, true);         /* bytes of all channels */
  file.setUint16(34, 16, true);        /* bits */
  putText(36, "data");
  file.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, i) => file.setInt16(
    WAV_HEADER_BYTES + 2 * i,
    Math.round(32767 * Math.max(-1, Math.min(1, sample))), true));
  return file;
};

/* Blocks of samples of `rate`, as samples of SPEECH_RATE. */
const resample = async (blocks, rate) => {
  const length = blocks.reduce((sum, block) => sum + block.length, 0);
  const context = new OfflineAudioContext(
    1, Math.max(1, Math.round(length * SPEECH_RATE / rate)), SPEECH_RATE);
  const buffer = context.createBuffer(1, length, rate);
  let at = 0;
  for (const block of blocks) {
    buffer.copyToChannel(block, 0, at);
    at += block.length;
  }
  const source = context.createBufferSource();
  source.buffer = buffer;
  source.connect(context.destination);
  source.start();
  return (await context.startRendering()).getChannelData(0);
};

/* `stage` is "asking" for the microphone, "recording", "ending", which makes the
   file of it, or "closed". */
class Recording {
  /* The file has `mostSamples` at most. */
  constructor(mostSamples) {
    this.mostSamples = mostSamples;
    this.stage = "asking";
    this.blocks = [];
    this.seconds = 0;
  }

  /* Starts it. `onBlock` is called several times a second with the seconds
     recorded and the highest level, from 0 to 1; `onEnd` when the file is full
     or the microphone goes. Throws the reason why there is none, as a sentence,
     also if it was closed meanwhile. */
  async begin(onBlock, onEnd) {
    if (!navigator.mediaDevices) {
      throw new Error("Browsers give the microphone only to pages from https " +
        "or from localhost. Open this page there, or choose a file.");
    }
    /* Before anything is waited for: a browser starts one on a click. */
    this.context = new AudioContext();
    try {
      /* Models are trained on audio as it is, and the page plays none. */
      this.stream = await navigator.mediaDevices.getUserMedia(
        {audio: {channelCount: 1, noiseSuppression: false,
                 echoCancellation: false}});
      await this.context.resume();
      if (this.stage !== "asking") throw new Error("it was closed.");
      const [track] = this.stream.getTracks();
      if (track.readyState === "ended") throw new Error("it has gone.");
      track.addEventListener("ended", onEnd);
      this.tapStream(onBlock, onEnd);
      this.stage = "recording";
    } catch (error) {
      this.close();
      throw new Error(refusalOf(error));
    }
  }

  tapStream(onBlock, onEnd) {
    const {context} = this;
    /* An AudioWorklet would load a script, which the page's policy forbids. */
    this.tap = context.createScriptProcessor(4096, 1, 1);
    this.tap.onaudioprocess = ({inputBuffer}) => {
      const block = inputBuffer.getChannelData(0).slice();
      this.blocks.push(block);
      this.seconds += block.length / context.sampleRate;
      onBlock(this.seconds, block.reduce(
        (most, sample) => Math.max(most, Math.abs(sample)), 0));
      if (this.seconds * SPEECH_RATE >= this.mostSamples) onEnd();
    };
    context.createMediaStreamSource(this.stream).connect(this.tap);
    /* It runs only if its output, which is silent, is heard. */
    this.tap.connect(context.destination);
  }

  /* Lets go of the microphone. Idempotent. */
  close() {
    this.stage = "closed";
    if (this.tap) this.tap.onaudioprocess = null;
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.context?.close().catch(() => {});  /* it was closed before */
  }

  /* Ends it; the file. Throws what went wrong, as a sentence. */
  async end() {
    this.close();
    this.stage = "ending";
    if (this.blocks.length === 0) throw new Error("Nothing was recorded.");
    try {
      /* The last block may have passed the limit. */
      const samples = (await resample(this.blocks, this.context.sampleRate))
        .subarray(0, this.mostSamples);
      this.seconds = samples.length / SPEECH_RATE;
      return new File([wavOf(samples, SPEECH_RATE)], "recording.wav",
                      {type: "audio/wav"});
    } catch (error) {
      throw new Error(`The recording cannot be converted: ${error.message}`);
    }
  }
}
