# docker build -t rosewood .                                  for processors, with the build of torch that pip finds
# docker build -t rosewood --build-arg DEVICE=gpu .           for GPUs; run it with: docker run --gpus all ...
# docker run --rm -v "$PWD/runs:/app/runs" rosewood demo
#
# On Linux, pip finds a build of torch that brings CUDA. For a small image give pip the address of PyTorch's builds
# for processors: --build-arg PIP_EXTRA_INDEX_URL=...
ARG PYTHON=3.11
FROM python:${PYTHON}-slim
ARG DEVICE=cpu
ARG EXTRAS=demo,lexicon,lora,tune
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN version=$(sed -n 's/^torch==//p' constraints.txt) \
    && if [ "$DEVICE" = cpu ] && [ -n "$PIP_EXTRA_INDEX_URL" ]; then version="$version+cpu"; fi \
    && sed -i '/^torch==/d' constraints.txt \
    && pip install --no-cache-dir "torch==$version" \
    && pip install --no-cache-dir -c constraints.txt ".[$EXTRAS]" \
    && rm -rf /src
WORKDIR /app
ENTRYPOINT ["rosewood"]
CMD ["--help"]
