// Functions of the host that this sandbox may call.
//
//   const { call, listTools } = require('belljar-tools')
//   const total = await call('add', { a: 1, b: 2 })
//
// Results are plain values as JSON has them. A call that is refused or fails throws ToolError, whose `code` is stable.
'use strict'

const net = require('node:net')

const SOCKET = process.env.BELLJAR_TOOL_SOCKET || '/run/belljar/service/tools.sock'

class ToolError extends Error {
  constructor (code, message) {
    super(`${message} (${code})`)
    this.name = 'ToolError'
    this.code = code
  }
}

/** Calls a tool with one object of arguments. */
function call (name, args = {}) {
  return ask(`call ${name} ${JSON.stringify(args)}`)
}

/** The tools there are now: name, description and input_schema of each. */
function listTools () {
  return ask('list')
}

function ask (line) {
  return new Promise((resolve, reject) => {
    if (line.includes('\n')) return reject(new ToolError('invalid-argument', 'a name has no line feed'))
    const pieces = []
    const agent = net.connect(SOCKET, () => agent.write(line + '\n'))
    agent.on('data', piece => pieces.push(piece))
    // Told no before all was said: the answer is there nevertheless.
    agent.on('error', error => { if (pieces.length === 0) reject(unavailable(error.message)) })
    agent.on('close', () => {
      const answer = Buffer.concat(pieces).toString()
      if (!answer.endsWith('\n')) return reject(unavailable('the answer broke off'))
      if (answer.startsWith('ok ')) return resolve(JSON.parse(answer.slice(3)))
      const [, code, message] = /^error (\S*) ?(.*)\n$/s.exec(answer) || [null, 'tool-failed', answer]
      reject(new ToolError(code, message))
    })
  })
}

function unavailable (reason) {
  return new ToolError('tool-unavailable', `tools cannot be called: ${reason}`)
}

module.exports = { ToolError, call, listTools }
