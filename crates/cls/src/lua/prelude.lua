-- The environment of a script: what the interpreter brings is replaced where a loop in C could run without end, and
-- where a failure must not be caught. Called with the host's functions; returns the function that runs a handler.
local host = ...
local error, next, pcall_, rawget, select, tostring, type = error, next, pcall, rawget, select, tostring, type
local load_, tointeger, tonumber = load, math.tointeger, tonumber
local find, gmatch, gsub, match = string.find, string.gmatch, string.gsub, string.match

-- pcall: a failure of the object's functions adds its errno before the message; limits cannot be caught.
local function outcome(ok, err, ...)
  if ok then return ok, err, ... end
  local final, errno = host.fault()
  if final then error(final, 0) end
  if errno then return false, errno, tostring(err) end
  return false, err
end
function pcall(...) return outcome(pcall_(...)) end
xpcall, dofile, loadfile, warn, collectgarbage, string.dump = nil

-- Finalizers run where instructions are not counted.
local setmetatable_ = setmetatable
function setmetatable(t, m)
  if type(m) == "table" and rawget(m, "__gc") ~= nil then error("setmetatable: no finalizers", 2) end
  return setmetatable_(t, m)
end
function load(chunk, name, mode, ...)
  if type(chunk) ~= "string" then error("load: only text can be loaded", 2) end
  return load_(chunk, name, "t", ...)
end
function print(...) host.objclass.log(...) end

-- Matching is in C: what a call may cost is bounded beforehand.
function string.find(s, p, init, plain) host.afford(s, p, plain); return find(s, p, init, plain) end
function string.match(s, p, init) host.afford(s, p); return match(s, p, init) end
function string.gmatch(s, p, init) host.afford(s, p); return gmatch(s, p, init) end
function string.gsub(s, p, r, n) host.afford(s, p); return gsub(s, p, r, n) end

-- Loops over tables run where instructions are counted.
function table.move(a, f, e, t, b)
  b = b or a
  if t > e or t <= f or a ~= b then
    for i = 0, e - f do b[t + i] = a[f + i] end
  else
    for i = e - f, 0, -1 do b[t + i] = a[f + i] end
  end
  return b
end
function table.insert(t, ...)
  local n = select("#", ...)
  local len = #t + 1
  if n == 1 then t[len] = (...) return end
  if n ~= 2 then error("wrong number of arguments to 'insert'", 2) end
  local at, v = ...
  if at < 1 or at > len then error("bad argument #2 to 'insert' (position out of bounds)", 2) end
  for i = len, at + 1, -1 do t[i] = t[i - 1] end
  t[at] = v
end
function table.remove(t, at)
  local len = #t
  if at == nil then at = len
  elseif len + 1 ~= at and (at < 1 or at > len + 1) then
    error("bad argument #2 to 'remove' (position out of bounds)", 2)
  end
  local v = t[at]
  for i = at, len - 1 do t[i] = t[i + 1] end
  if at <= len then t[len] = nil end
  return v
end
function table.concat(t, sep, i, j)
  local out = {}
  for k = i or 1, j or #t do
    local v = t[k]
    if type(v) ~= "string" and type(v) ~= "number" then
      error("invalid value (at index " .. k .. ") in table for 'concat'", 2)
    end
    out[#out + 1] = v
  end
  return host.concat(out, sep or "")
end
function table.unpack(t, i, j)
  local out, n = {}, 0
  for k = i or 1, j or #t do n = n + 1; out[n] = t[k] end
  return host.unpack(out, n)
end
function table.sort(t, less)
  less = less or function(a, b) return a < b end
  local n = #t
  local function sink(root, last)
    while 2 * root <= last do
      local child = 2 * root
      if child < last and less(t[child], t[child + 1]) then child = child + 1 end
      if not less(t[root], t[child]) then return end
      t[root], t[child] = t[child], t[root]
      root = child
    end
  end
  for root = n // 2, 1, -1 do sink(root, n) end
  for last = n, 2, -1 do
    t[1], t[last] = t[last], t[1]
    sink(1, last - 1)
  end
end

-- Handlers.
local registered = {}
function host.objclass.register(f)
  if type(f) ~= "function" then error("bad argument #1 to 'register' (function expected)", 2) end
  if registered[f] then error("Cannot register handler more than once", 0) end
  registered[f] = true
end
objclass, bufferlist = host.objclass, host.bufferlist

local function last(...)
  local n = select("#", ...)
  if n == 0 then return 0 end
  local v = select(n, ...)
  if type(v) == "string" then v = tonumber(v) end
  v = type(v) == "number" and tointeger(v)
  return v or error("the handler returned no integer", 0)
end
return function(name, input, output)
  local f = _G[name]
  if type(f) ~= "function" then return nil end
  if not registered[f] then error("Handler is not registered", 0) end
  return last(f(input, output))
end
