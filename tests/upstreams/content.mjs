// Content blocks and the results made of them.

// One red pixel.
export const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC';
// One silent sample.
const WAV = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==';

export const text = (words) => ({ type: 'text', text: words });
export const image = () => ({ type: 'image', data: PNG, mimeType: 'image/png' });
export const audio = () => ({ type: 'audio', data: WAV, mimeType: 'audio/wav' });
export const resource = (uri, mimeType, words) => ({ type: 'resource', resource: { uri, mimeType, text: words } });

// A tool's result: one text, or these blocks, or a failure.
export const said = (words) => blocks(text(words));
export const blocks = (...content) => ({ content });
export const failed = (words) => ({ content: [text(words)], isError: true });

// A prompt's result: one message of the user per block.
export const messages = (...content) => ({ messages: content.map((block) => ({ role: 'user', content: block })) });

// The schema of what takes nothing, and of what takes one required text.
export const nothing = () => ({ type: 'object', properties: {} });
export const oneText = (name, description) => ({
  type: 'object',
  properties: { [name]: { type: 'string', description } },
  required: [name],
});
